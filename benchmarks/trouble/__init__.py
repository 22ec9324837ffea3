"""Kinds of trouble that `benchmarks.chaos` makes, and what is counted of each."""
