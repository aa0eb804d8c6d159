"""How a process keeps the memory that it freed."""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MIB = 1 << 20


def limit() -> None:
    """Two heaps, which give back what is free at their end, and large blocks outside of them.

    glibc gives each of many threads a heap of its own, up to eight for each core. What one of them
    freed is no use to the others, and each keeps the size of its largest moment: a process grows
    for hours. Two serve Python's threads, of which one computes at a time. Call it before other
    threads begin. Does nothing with another C library.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 2)
        libc.mallopt(M_MMAP_THRESHOLD, MIB)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * MIB)
