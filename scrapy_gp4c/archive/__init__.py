"""Archive of page texts and differences between two of them."""
