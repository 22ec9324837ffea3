"""State of pages as numpy columns, its update by visits, and columns made of related pages; no I/O."""
