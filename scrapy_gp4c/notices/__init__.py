"""Notices of page events: messages, commands, feeds and metrics for people and programs."""
