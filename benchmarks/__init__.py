"""Benchmarks: one script per figure of the documentation; each prints machine, versions and ratio."""
