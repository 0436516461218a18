"""Ways to use a network that has learned before: its features, or all of it at a small rate."""
