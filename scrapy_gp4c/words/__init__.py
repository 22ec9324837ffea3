"""Texts as words: normalised, masked, cut into tokens and shingles; neither Scrapy nor a store."""
