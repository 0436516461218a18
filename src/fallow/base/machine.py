"""What the machine has."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


@lru_cache
def memory() -> int:
    """Bytes of memory that this process may have at most: the machine's, or its container's."""
    try:
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not a Unix
        found = 64 << 30
    for limit in map(Path, LIMITS):
        try:
            found = min(found, int(limit.read_text()))
        except (OSError, ValueError):  # none, or "max"
            continue
    return found
