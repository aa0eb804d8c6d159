"""Operations on an embedded PostgreSQL for tests: changed settings, and a standby."""

import os
import signal
from pathlib import Path

from annals.embedded import postgres
from annals.embedded.postgres import USER, EmbeddedPostgres, PostgresSettings
from annals.embedded.process import HOST
from history.common import private_files


def change_settings(server: EmbeddedPostgres, settings: PostgresSettings) -> None:
    """Change settings. A running server applies those that need no restart."""
    server.settings.update(settings)
    postgres.write_settings(server.data, {**server.settings, "port": server.get_port()})
    if (pid := server.find_pid()) is not None:
        os.kill(pid, signal.SIGHUP)


def create_standby(
    server: EmbeddedPostgres, home: Path, name: str, settings: PostgresSettings | None = None
) -> EmbeddedPostgres:
    """Create a standby of a running server in `home`. When started, it follows the server.

    Args:
        name: The standby's name in `synchronous_standby_names` of the primary.
    """
    copy = EmbeddedPostgres(home, settings)
    copy.home.mkdir(parents=True)
    password = private_files.write_private_file(
        copy.home / "password", (server.home / "password").read_text()
    )
    for file in server.home.glob("*.password"):
        private_files.write_private_file(copy.home / file.name, file.read_text())
    source = f"host={HOST} port={server.get_port()} user={USER} application_name={name}"
    with postgres.create_data_directory(copy.data) as (fresh, owner):
        options = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")
        postgres.run_program(
            owner,
            "pg_basebackup",
            "--pgdata",
            fresh,
            *options,
            "--dbname",
            source,
            PGPASSWORD=password.read_text(),
        )
    return copy


def promote_standby(standby: EmbeddedPostgres) -> None:
    """Make a standby a primary, and wait until it accepts writes."""
    with standby._connect() as connection:
        connection.execute("SELECT pg_promote(wait => true)")
