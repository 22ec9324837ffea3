"""Experiments of five papers repeated, with their tables and figures."""
