"""Fetchers: processes that download and run callbacks for the owner of a crawl, over Dask."""
