"""Files that only their owner can read, and the passwords in them."""

import os
import secrets
import stat
from pathlib import Path


def new_password() -> str:
    """A new password. Its characters need no quoting in a URI or a configuration file."""
    return secrets.token_urlsafe(24)


def write(path: Path, text: str) -> Path:
    """Write `text` to a new file `path` that only its owner can read. Replaces an older file."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    return path
