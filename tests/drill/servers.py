"""A PostgreSQL that archives its WAL, its backup, and the server that is restored from both."""

import os
import shutil
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from annals.embedded import postgres, process
from annals.embedded.postgres import Postgres

GB = 1 << 30
START_SECONDS = 3600


def took(what: str, folder: Path, began: float) -> str:
    """What moved the bytes of this folder since then, as a line."""
    moved, seconds = size(folder), time.monotonic() - began
    return f"{what}: {moved / GB:.2f} GB in {seconds:.0f} s, {moved / seconds / 1e6:.0f} MB/s"


def size(folder: Path) -> int:
    """The bytes of all files below a folder that may change meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def primary(folder: Path) -> tuple[Postgres, Path]:
    """A running server, and the folder to which it archives each segment of its WAL."""
    archive = folder / "wal"
    archive.mkdir()
    server = Postgres(
        folder / "primary",
        {
            "archive_mode": "on",
            "archive_command": f"test ! -f {archive}/%f && cp %p {archive}/%f",
            "max_wal_size": "4GB",
        },
    )
    server.start()
    owner = server.data.stat()
    os.chown(archive, owner.st_uid, owner.st_gid)
    return server, archive


def back_up(server: Postgres, folder: Path) -> str:
    """pg_basebackup into folder/data, with the WAL that it needs itself."""
    began = time.monotonic()
    source = f"host={process.HOST} port={server.port()} user=annals"
    with postgres.new_data(folder / "data") as (fresh, owner):
        what = ("--checkpoint=fast", "--wal-method=stream", "--dbname", source)
        password = (server.home / "password").read_text()
        postgres.run(owner, "pg_basebackup", "--pgdata", fresh, *what, PGPASSWORD=password)
    return took("pg_basebackup", folder / "data", began)


def restore(backup: Path, archive: Path, to: datetime, source: Postgres, home: Path) -> Postgres:
    """A server with the base backup and the archived WAL up to a moment; not started yet.

    Logins and passwords are those of the backup.
    """
    home.mkdir()
    for file in (source.home / "password", *source.home.glob("*.password")):
        shutil.copy2(file, home / file.name)
    made = Postgres(
        home,
        {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_time": to.isoformat(),
            "recovery_target_action": "promote",
            "max_wal_size": "4GB",
        },
    )
    owner = (backup / "data").stat()
    shutil.copytree(backup / "data", made.data, symlinks=True)
    for each in (made.data, *made.data.rglob("*")):
        os.lchown(each, owner.st_uid, owner.st_gid)
    signal = made.data / "recovery.signal"
    signal.touch()
    os.chown(signal, owner.st_uid, owner.st_gid)
    return made
