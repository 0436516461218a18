"""Ratios against peers and limits, measured side by side: ``python -m benchmarks NAME --json``."""
