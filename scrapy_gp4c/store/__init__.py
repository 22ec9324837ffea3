"""What a crawl keeps: the protocol of a store, its records and the text of its history."""
