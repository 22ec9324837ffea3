"""Search over the crawled pages: queries, scores, quality, and the value of refreshed copies."""
