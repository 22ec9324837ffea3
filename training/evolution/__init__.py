"""Genetic programming over score functions (GP4C)."""
