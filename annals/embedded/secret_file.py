"""Files that only their owner can read, and the passwords in them."""

import os
import secrets
import stat
from pathlib import Path


def new_password() -> str:
    """A new password. Its characters need no quoting in a URI or a configuration file."""
    return secrets.token_urlsafe(24)


def write(path: Path, text: str, owner: os.stat_result | None = None) -> Path:
    """Write `text` to a new file `path` that only its owner can read. Replaces an older file, and
    never writes through a link. All of it or, where the disk is full, nothing. owner: that of the
    file, if this process is root; None: root."""
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        if owner is not None and os.geteuid() == 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return draft.replace(path)


def replace(path: Path, text: str) -> None:
    """Write a file in a folder of another user, as that user's: root writes only what it made in
    this moment, wherever links in the folder may lead."""
    write(path, text, path.parent.stat())


def written(path: Path) -> bool:
    """Whether it has something in it: earlier releases could leave an empty one."""
    return path.exists() and path.stat().st_size > 0
