"""Whether the files of a folder are this process's own. Annals trusts what is in ANNALS_HOME: the
key, the passwords and addresses of servers, the files that they write."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# What is made there, and read by later commands. The data of PostgreSQL are not in the list: root
# gives them to the user as whom PostgreSQL runs.
READ: Final = ("secret_key", "postgres", "broker", "apache-kafka")


def fault(home: Path) -> str | None:
    """Why the folder must not be used: somebody else may have put there what is in it, as in a
    .annals of /tmp. None if nothing is wrong, or it does not exist. Raises OSError.

    Everybody may write the folder itself where it is the volume of a container: then only what is
    in it has to be ours."""
    own = (0, os.geteuid())
    for path in (home, *(home / each for each in READ)):
        for found in _looks(path):
            if found.st_uid not in own:
                return f"{path} belongs to the user {_name(found.st_uid)}, who may have prepared it"
            everybody = found.st_mode & stat.S_IWOTH and not stat.S_ISLNK(found.st_mode)
            if everybody and path != home:
                return f"every user of this machine may write {path}"
    return None


def _looks(path: Path) -> Iterator[os.stat_result]:
    """Of the path, and of what it leads to if it is a link."""
    for look in (path.lstat, path.stat):
        try:
            yield look()
        except FileNotFoundError:
            return


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
