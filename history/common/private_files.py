"""Files that only their owner reads, written whole or not at all; and locks."""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_file_lock(path: Path) -> Iterator[None]:
    """Hold the lock file `path`. Of two processes that want it at once, one waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write_private_file(path: Path, text: str, owner: os.stat_result | None = None) -> Path:
    """Write `text` to the file `path`, which only its owner can read, and replace an older file.

    Never writes through a link. If the disk is full, writes nothing.

    Args:
        owner: The owner of the file, if this process runs as root. None: root.
    """
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        if owner is not None and os.geteuid() == 0:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return draft.replace(path)
