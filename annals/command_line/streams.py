"""Standard input, output and error of a command, so that their failures do not end work halfway."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# The commands that only read, and which of their actions do, if not all. What a reader of their
# output does not want, they need not look for. All others change something.
_READING: Final[Mapping[str, Collection[str]]] = {
    **dict.fromkeys(("capacity", "check", "compare-old", "contract", "export"), ()),
    **dict.fromkeys(("help", "journal", "ledger", "share", "trace"), ()),
    "gaps": ("list",),
    "partitions": ("list", "plan", "verify"),
    "quarantine": ("list", "show"),
}


def only_reads(words: Sequence[str]) -> bool:
    """Whether a command line changes nothing. words: after the name of the program."""
    actions = _READING.get(words[0])
    return actions is not None and (not actions or any(each in actions for each in words[1:]))


class _Kept(io.FileIO):
    """A file that takes everything. failed: why it had to throw something away."""

    failed: OSError | None = None

    def write(self, data: Buffer) -> int | None:  # type: ignore[override] # as FileIO does
        try:
            return super().write(data)
        except OSError as error:
            self.failed = error
            return memoryview(data).nbytes


# The standard output of a command that keeps on.
_kept: list[_Kept] = []


def begin() -> None:
    """What a process that was started without a standard stream writes there goes nowhere. Nothing
    that fails on standard error ends the process: it is progress, and a log."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. A connection that got it would be written to by
            # every library that prints a warning.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    _replace("stderr")


def keep_on() -> None:
    """Let the command go on when nobody reads its standard output, or there is no room for it."""
    if (kept := _replace("stdout")) is not None:
        _kept.append(kept)


def settle() -> None:
    """Write what standard output has left. Raises the OSError because of which a part of it was
    thrown away, unless nobody reads it."""
    sys.stdout.flush()
    for each in _kept:
        if each.failed is not None and each.failed.errno != errno.EPIPE:
            raise each.failed


def _replace(name: str) -> _Kept | None:
    """None: the stream is not the process' own, for example in a test."""
    old = getattr(sys, name)
    if old is not getattr(sys, f"__{name}__") or not isinstance(old, io.TextIOWrapper):
        return None
    old.flush()
    kept = _Kept(old.fileno(), "w", closefd=False)
    new = io.TextIOWrapper(
        io.BufferedWriter(kept),
        old.encoding,
        old.errors,
        line_buffering=old.line_buffering or old.write_through,
    )
    setattr(sys, name, new)
    return kept
