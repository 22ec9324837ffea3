"""The score language, its terminals, the named score functions, and ranking by score; no I/O but `load`."""
