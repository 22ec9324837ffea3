"""Replay: what a policy would have found on a recorded history."""
