"""What a search engine makes of the pages: queries, scores, quality, and what a refreshed copy is worth."""
