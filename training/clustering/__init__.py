"""Groups of pages that may change together, from what the pages say."""
