"""The score language, its terminals, score functions, and ranking by score; only `functions` reads files."""
