"""Search over the crawled pages: query logs, scores, search quality, and gains by refreshed copies."""
