"""The PostgreSQL servers of the drill.

A primary archives its WAL and is backed up. A second server is restored from backup and WAL.
"""

import os
import shutil
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from annals.embedded import postgres, process
from annals.embedded.postgres import EmbeddedPostgres

GB = 1 << 30
START_SECONDS = 3600


def describe_speed(subject: str, folder: Path, began: float) -> str:
    """Return a line that says how fast the bytes of this folder were moved."""
    bytes_moved, seconds = measure_size(folder), time.monotonic() - began
    return (
        f"{subject}: {bytes_moved / GB:.2f} GB in {seconds:.0f} s, "
        f"{bytes_moved / seconds / 1e6:.0f} MB/s"
    )


def measure_size(folder: Path) -> int:
    """Return the size of all files below a folder in bytes. The files may change meanwhile."""
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += file.lstat().st_size
    return total


def start_primary(folder: Path) -> tuple[EmbeddedPostgres, Path]:
    """Start a server, and return it with the folder to which it archives its WAL."""
    archive = folder / "wal"
    archive.mkdir()
    server = EmbeddedPostgres(
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


def back_up_server(server: EmbeddedPostgres, folder: Path) -> str:
    """Run pg_basebackup into folder/data, with the WAL that the backup needs."""
    began = time.monotonic()
    source = f"host={process.HOST} port={server.get_port()} user=annals"
    with postgres.create_data_directory(folder / "data") as (fresh, owner):
        options = ("--checkpoint=fast", "--wal-method=stream", "--dbname", source)
        password = (server.home / "password").read_text()
        postgres.run_program(
            owner, "pg_basebackup", "--pgdata", fresh, *options, PGPASSWORD=password
        )
    return describe_speed("pg_basebackup", folder / "data", began)


def restore_server(
    backup: Path, archive: Path, moment: datetime, source: EmbeddedPostgres, home: Path
) -> EmbeddedPostgres:
    """Prepare a server from a base backup and the WAL up to a moment. The caller must start it.

    The logins and passwords come from the backup.
    """
    home.mkdir()
    for file in (source.home / "password", *source.home.glob("*.password")):
        shutil.copy2(file, home / file.name)
    restored = EmbeddedPostgres(
        home,
        {
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_time": moment.isoformat(),
            "recovery_target_action": "promote",
            "max_wal_size": "4GB",
        },
    )
    owner = (backup / "data").stat()
    shutil.copytree(backup / "data", restored.data, symlinks=True)
    for path in (restored.data, *restored.data.rglob("*")):
        os.lchown(path, owner.st_uid, owner.st_gid)
    signal = restored.data / "recovery.signal"
    signal.touch()
    os.chown(signal, owner.st_uid, owner.st_gid)
    return restored
