"""One run of a crawl: its cycle, plan, frontier, and control group."""
