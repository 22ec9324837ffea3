"""A Scrapy project that monitors a small web served on loopback, and the demo that runs it."""
