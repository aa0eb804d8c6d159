"""The system user that runs an embedded PostgreSQL, and that user's access to the files.

PostgreSQL refuses to run as root, so root needs another user for it. Other users run it as
themselves.
"""

import os
import pwd
import stat
import subprocess
from pathlib import Path

NAMES = ("postgres", "annals")


def for_data(data: Path) -> pwd.struct_passwd | None:
    """The user that owns or will own the data directory; None: the current user."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return pwd.getpwuid(data.stat().st_uid)
    for name in NAMES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    options = ("--system", "--no-create-home", "--shell", "/usr/sbin/nologin")
    subprocess.run(["/usr/sbin/useradd", *options, NAMES[-1]], check=True, capture_output=True)
    return pwd.getpwnam(NAMES[-1])


def allow_passing(path: Path) -> None:
    """Allow other users to pass through, but not list, the directories above `path`."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def allow_reading(folder: Path) -> None:
    """Allow other users to read and run an installed package (root may have a strict umask)."""
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if wanted != mode and not path.is_symlink():
            path.chmod(wanted)
