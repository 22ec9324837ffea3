"""Change histories: files, stores and git repositories that hold them, models that make them, their parts."""
