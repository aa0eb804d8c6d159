"""Errors with messages for people, and functions that explain wrong files and wrong values."""

import errno
import getpass
import os
import re
import stat
from pathlib import Path
from typing import Any, Final

import msgspec

from history.common.valid_values import explain_valid_values


class ExplainedError(Exception):
    """An error with a message for people: what is wrong, where, and what to do.

    The message has one line and no password.
    """


class FileError(ExplainedError, ValueError):
    """Raised if a file cannot be read, or does not have the expected content."""


def read_bytes(file: Path) -> bytes:
    """Return the content of a file.

    Raises:
        FileError: The file cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise FileError(explain_file_error(error, file)) from None
    except ValueError:  # a NUL in its name
        raise FileError(f"{str(file)!r} is not the name of a file") from None


def read_text(file: Path) -> str:
    """Return the text of a file in UTF-8, without a byte order mark.

    Raises:
        FileError: The file cannot be read, or is not UTF-8.
    """
    try:
        return read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(f"{file} {explain_text_error(error)}") from None


def refuse_open_secret(file: Path) -> None:
    """Raise FileError if every user of this machine may read or change a file with a secret.

    The file's group may read it: Kubernetes mounts a Secret with this right.

    Raises:
        FileError: Every user may read or change the file.
    """
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise FileError(explain_file_error(error, file)) from None
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        raise FileError(
            f"{file} has mode {stat.S_IMODE(mode):04o}, so every user of this machine can reach "
            f"the secret in it. Run: chmod 600 {file}"
        )


def explain_file_error(error: OSError, file: object = None) -> str:
    """Explain why a file could not be read or written.

    Args:
        file: The name of the file, used if the error does not name it.
    """
    name = error.filename if file is None else file
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    problem = error.strerror or type(error).__name__
    if error.errno in (errno.EACCES, errno.EPERM):
        problem = f"permission denied for {_get_user()}, the user of this process"
    return problem if name is None or isinstance(name, int) else f"{name}: {problem}"


def explain_text_error(error: UnicodeDecodeError) -> str:
    """Explain why bytes are not text in UTF-8, as the predicate of a sentence."""
    return f"is not text in UTF-8 (byte {error.start + 1} is wrong)"


def _get_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container the user may not have a name
        return str(os.getuid())


# Words for people, by msgspec's name of a type.
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "date": "a day",
    "datetime": "a day with a time",
}


def explain_declaration_error(
    error: Exception, form: str, shape: Any = None, declared: Any = None
) -> str:
    """Explain why msgspec could not convert a text to a type.

    Args:
        form: The format of the text, such as `JSON`.
        shape: The expected type, from which the explanation lists the values that would be valid.
            None: the explanation does not list them.
        declared: The text, parsed into dicts, lists and scalars. None: the explanation cannot name
            the key of a wrong value in a dict.

    Returns:
        One or more sentences. The last one has no period: the caller adds it.
    """
    if isinstance(error, UnicodeDecodeError):
        return f"it {explain_text_error(error)}"
    if isinstance(error, RecursionError):
        return f"the {form} is nested too deep"
    if isinstance(error, msgspec.ValidationError):
        text = re.sub(r" matching regex .*?(?= - at |$)", " of another form", str(error))
        problem = re.sub(r"(Expected|got) `([^`]+)`", _describe_kind, text)
        valid = None if shape is None else explain_valid_values(error, shape, declared)
        return problem if valid is None else f"{problem}. {valid}"
    return f"it is not {form}: {error}"


def _describe_kind(match: re.Match[str]) -> str:
    kinds = match[2].split(" | ")
    return f"{match[1]} {' or '.join(_KINDS.get(kind, kind) for kind in kinds)}"
