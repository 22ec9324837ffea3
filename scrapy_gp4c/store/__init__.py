"""Store of a crawl: its records, and the text of an exported history."""
