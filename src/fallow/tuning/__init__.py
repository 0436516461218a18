"""Weight decay learned on validation, beside what it must be compared with."""
