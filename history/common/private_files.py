"""Writes files atomically, so that only their owner can read them, and locks files."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_file_lock(path: Path) -> Iterator[None]:
    """Lock the file `path` during the `with` block. Waits while a different process has the lock.

    The file is created if it does not exist.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_private_file(path: Path, text: str, owner: os.stat_result | None = None) -> Path:
    """Write `text` to the file `path` so that only its owner can read it.

    An older file is replaced, or stays as it is if the write fails. A link is replaced, never
    followed.

    Args:
        owner: Who will own the file, if this process runs as root. None: root.
    """
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        if owner is not None and os.geteuid() == 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return draft.replace(path)
