"""Words of texts: normal form, masks, tokens, shingles and descriptions, without Scrapy and store."""
