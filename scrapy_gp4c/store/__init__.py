"""Store of a crawl (pages, visits, cycles): opening it, its typed records, and its history as text."""
