"""What one would try first against overfitting: the rivals that forgetting has to beat."""
