"""Judge score functions on recorded page-change histories, and learn better ones."""
