"""Which pages a cycle visits, in rounds; pure."""
