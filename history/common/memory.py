"""Limits the freed memory that a process keeps instead of returning it to the system."""

import ctypes

# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MIB = 1 << 20


def limit_heaps() -> None:
    """Make glibc use at most two heaps, and give freed memory back to the system.

    With a heap for each of many threads, the memory of a process would grow for hours. Large
    objects are allocated outside of the heaps. Call this before other threads start.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_ARENA_MAX, 2)
        libc.mallopt(M_MMAP_THRESHOLD, MIB)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * MIB)
