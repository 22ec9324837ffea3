"""What pages said: their last versions as text, and how two of them differ."""
