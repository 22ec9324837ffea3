"""Notices of page events (new, changed, gone, ...): messages, a shell command, feeds and metrics."""
