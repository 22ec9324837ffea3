"""What is known of a page in columns, what a visit does to them, and page classes; pure."""
