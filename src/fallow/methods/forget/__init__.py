"""Methods that forget and relearn."""
