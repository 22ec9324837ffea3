"""Change histories: read from files, stores and git repositories, or made by models; their splits."""
