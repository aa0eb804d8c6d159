"""What is wrong with files and declarations, in words for people. Pure but for reading files."""

from __future__ import annotations

import errno
import getpass
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final


class Complaint(Exception):
    """An error whose text is for people: what is wrong, where, and what to do. One line, without
    a password."""


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


# msgspec names the types of Python.
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "date": "a day",
    "datetime": "a day with a time",
}
_WRONG: Final = (
    (r"Object missing required field `(?P<name>[^`]+)`", "{name} is missing"),
    (r"Object contains unknown field `(?P<name>[^`]+)`", "{name} is no known field"),
    (r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`", "must be {wanted}, and is {got}"),
    (r"Expected `\w+` of length >= (?P<low>\d+).*", "must have {low} or more"),
    (r"Expected `\w+` of length <= (?P<high>\d+).*", "must have {high} at most"),
    (r"Expected `(?P<wanted>\w+)` >= (?P<low>\S+)", "must be {wanted} of at least {low}"),
    (r"Expected `(?P<wanted>\w+)` <= (?P<high>\S+)", "must be {wanted} of at most {high}"),
    (r"Expected .*", "is of another form"),
    (r"Invalid enum value (?P<value>.*)", "has no value {value}"),
)
_JSON: Final = re.compile(r"JSON is malformed: .* \(byte (?P<byte>\d+)\)", re.DOTALL)


def of_declaration(error: Exception, form: str) -> str:
    """The sentence about what msgspec cannot read as its type. form: what the text is, as `JSON`.
    Quotes no value but that of a choice."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not text in UTF-8 (byte {error.start + 1} is wrong)"
    if isinstance(error, RecursionError):
        return f"it is not {form} that can be read: it is nested too deep"
    text = str(error)
    if "truncated" in text:
        return f"it is not {form}: it ends too early, or is empty"
    if found := _JSON.fullmatch(text):
        return f"it is not {form} from byte {int(found['byte']) + 1} on"
    what, _, path = text.partition(" - at `$")
    where = _place(path.rstrip("`").lstrip("."))
    for pattern, words in _WRONG:
        if wrong := re.fullmatch(pattern, what, re.DOTALL):
            given = {name: _kind(name, value) for name, value in wrong.groupdict().items()}
            said = words.format(**given)
            if "missing" in said or "known" in said:
                return f"{where}: {said}" if where else said
            return f"{where or ('a value in it' if path else 'the whole')} {said}"
    return f"it is not {form}: {text}"


def _kind(name: str, value: str) -> str:
    if name not in ("wanted", "got"):
        return value
    return " or ".join(_KINDS.get(each, each) for each in value.split(" | "))


def _place(path: str) -> str:
    """`provider[0].roles[...]` as `provider 1, roles`."""
    path = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", path)
    names = path.replace("[...]", "").replace("key` in `", "").split(".")
    text = ", ".join(each.strip() for each in names if each.strip())
    return f"entry {text}" if text[:1].isdigit() else text
