"""Store of a crawl: its protocols, its records, and the text of an exported history."""
