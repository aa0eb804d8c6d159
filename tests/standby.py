"""What tests do with an embedded PostgreSQL and the product does not: a standby, other settings."""

import os
import signal
from pathlib import Path

from annals.embedded import postgres, process
from annals.embedded.postgres import USER, Postgres, Settings
from annals.embedded.process import HOST


def configure(server: Postgres, settings: Settings) -> None:
    """Change settings. A running server applies those that need no restart."""
    server.settings.update(settings)
    postgres.write_settings(server.data, {**server.settings, "port": server.port()})
    if (pid := server.pid()) is not None:
        os.kill(pid, signal.SIGHUP)


def standby_of(
    server: Postgres, home: Path, name: str, settings: Settings | None = None
) -> Postgres:
    """A copy of a running server in `home`. When started it follows this server.

    name: its name in `synchronous_standby_names` of the primary.
    """
    copy = Postgres(home, settings)
    copy.home.mkdir(parents=True)
    password = process.write(copy.home / "password", (server.home / "password").read_text())
    for file in server.home.glob("*.password"):
        process.write(copy.home / file.name, file.read_text())
    source = f"host={HOST} port={server.port()} user={USER} application_name={name}"
    with postgres.new_data(copy.data) as (fresh, owner):
        what = ("--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync")
        postgres.run(
            *(owner, "pg_basebackup", "--pgdata", fresh, *what, "--dbname", source),
            PGPASSWORD=password.read_text(),
        )
    return copy


def promote(standby: Postgres) -> None:
    """Make a standby a primary; returns when it accepts writes."""
    with standby._connect() as connection:
        connection.execute("SELECT pg_promote(wait => true)")
