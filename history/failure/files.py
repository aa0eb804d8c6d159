"""Sentences about files: errors of the operating system, and text that is not UTF-8."""

from __future__ import annotations

import errno
import getpass
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from history.failure.complaint import Complaint

_WHAT: Final[Mapping[int, str]] = {
    errno.ENOENT: "there is no file or folder {}",
    errno.EISDIR: "{} is a folder, not a file",
    errno.ENOTDIR: "a part of {} is a file, not a folder",
    errno.EEXIST: "{} exists already",
    errno.EROFS: "{} cannot be written: its disk is read-only",
    errno.ENOSPC: "{} cannot be written: no space is left on its disk",
    errno.EDQUOT: "{} cannot be written: the quota of its disk is used up",
    errno.ENAMETOOLONG: "the name {} is too long",
    errno.ELOOP: "{} is a link that leads to itself",
}


class FileError(Complaint, ValueError):
    """A file cannot be read as text."""


def read_bytes(file: Path) -> bytes:
    """The content of a file. Raises FileError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise FileError(of_file(error, file)) from None
    except ValueError:  # a NUL in its name
        raise FileError(f"{str(file)!r} is not the name of a file") from None


def read_text(file: Path) -> str:
    """The text of a file in UTF-8, without a byte order mark. Raises FileError."""
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{file} {of_text(error)}") from None


def of_file(error: OSError, file: object = None) -> str:
    """What is wrong with a file. file: its name, if the error does not know it."""
    name = error.filename if file is None else file
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    where = "standard output or a file" if name is None or isinstance(name, int) else str(name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} is not open to the user {_user()}, as which this process runs"
    text = _WHAT.get(error.errno or 0)
    if text is not None:
        return text.format(where)
    said = error.strerror or type(error).__name__
    return said if name is None else f"{where}: {said}"


def of_text(error: UnicodeDecodeError) -> str:
    """What is wrong with bytes that are no text."""
    return f"is not text in UTF-8 (byte {error.start + 1} is wrong)"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for it
        return str(os.getuid())
