"""What everything stands on: errors, files, locks, seeds, specs, TOML."""
