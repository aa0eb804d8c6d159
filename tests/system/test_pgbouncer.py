"""A consumer behind PgBouncer, which keeps no settings of a session: it ends with a sentence."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from annals.embedded import logins, postgres, process
from tests import need
from tests.consuming import Database, command, until
from tests.processes import database, server

pytestmark = pytest.mark.system
__all__ = ["database", "server"]

CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
{more}
"""


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="annals-pgbouncer-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    "mode, more, why",
    [
        ("transaction", "ignore_startup_parameters = options,extra_float_digits", "A pooler"),
        ("session", "ignore_startup_parameters = options,extra_float_digits", "A pooler"),
        ("transaction", "", "unsupported startup parameter"),
    ],
)
def test_the_consumer_says_what_is_in_the_way(
    database: Database, folder: Path, mode: str, more: str, why: str
) -> None:
    need.program("pgbouncer")
    given = conninfo_to_dict(database.url_of(logins.CONSUMER))
    [port] = process.free_ports([None])
    file = folder / "pgbouncer.ini"
    file.write_text(
        CONFIG.format(
            server=given["port"], user=given["user"], password=given["password"],
            port=port, mode=mode, more=more,
        )
    )  # fmt: skip
    owner = postgres.user_for_data(database.server.data)
    pooler = subprocess.Popen(
        [shutil.which("pgbouncer") or "", "-q", file], cwd=folder,
        user=owner.pw_uid if owner else None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: listens(port), "pgbouncer does not listen")
        env = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
        env |= {
            "DATABASE_URL": f"postgresql://{given['user']}@127.0.0.1:{port}/{database.name}",
            "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            "ANNALS_HOME": str(folder / "home"),
        }
        done = command(env, "consume")
        assert done.returncode == 1
        assert why in done.stderr
    finally:
        pooler.terminate()
        pooler.wait(20)
