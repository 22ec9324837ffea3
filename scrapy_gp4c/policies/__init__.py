"""Policies, which choose the pages that a cycle visits, in one or several rounds; no I/O."""
