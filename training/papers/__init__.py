"""Experiments of four papers repeated, with their tables and figures."""
