"""One store as several: which shard a page belongs to, their directory, and many shards as one store."""
