"""Fetchers: processes that download and run callbacks for a crawl's own process (its owner), over Dask."""
