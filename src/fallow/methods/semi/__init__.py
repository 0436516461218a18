"""Methods that learn from unlabelled images too."""
