"""The ledger: what the workers of one crawl agree on, in PostgreSQL; see docs/distributed.md."""
