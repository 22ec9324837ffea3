"""State of pages as columns, what visits do to it, and columns of related pages; pure."""
