"""What is a network worth on other data? Its features are frozen, and probed or tried in few-shot episodes."""
