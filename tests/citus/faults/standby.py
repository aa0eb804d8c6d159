"""A streaming replica of a cluster node. The node must run on this machine."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from annals.embedded import process
from tests.citus.faults.nodes import Address, Nodes
from tests.consuming import wait_until

NAME = "annals_standby"

_SYNCHRONOUS = "SELECT FROM pg_stat_replication WHERE application_name = %s AND sync_state = 'sync'"


@dataclass(frozen=True)
class Standby:
    """A standby server."""

    address: Address
    folder: Path
    programs: Path
    user: str

    def promote(self) -> None:
        """Make the standby a primary, and wait until it is one."""
        self.run("pg_ctl", "-D", self.folder, "-w", "promote")

    def run(self, program: str, *words: str | Path) -> None:
        """Run a program of PostgreSQL as the system user of the node."""
        # The program may start a server, which would keep an output pipe open.
        subprocess.run(
            [self.programs / program, *words],
            check=True,
            timeout=300,
            cwd="/",
            user=self.user,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


@contextmanager
def follow_node(nodes: Nodes, node: Address) -> Iterator[Standby]:
    """Run a synchronous standby of a node during the block.

    Afterwards the node runs, and has no standby.
    """
    with psycopg.connect(nodes.get_url(node)) as plain:
        server = psutil.Process(plain.info.backend_pid).parent()
        user = plain.info.user
    assert server is not None
    folder = Path(tempfile.mkdtemp(prefix="annals-standby-"))
    (port,) = process.choose_free_ports([None])
    standby = Standby(
        (node[0], port), folder / "data", Path(server.exe()).parent, server.username()
    )
    os.chown(folder, pwd.getpwnam(standby.user).pw_uid, -1)
    try:
        primary = make_conninfo(host=node[0], port=node[1], user=user, application_name=NAME)
        standby.run("pg_basebackup", "-d", primary, "-D", standby.folder, "-R", "-c", "fast")
        with (standby.folder / "postgresql.conf").open("a") as conf:
            conf.write(f"\nport = {port}\n")
        standby.run("pg_ctl", "-D", standby.folder, "-l", folder / "log", "-w", "start")
        nodes.alter_system(node, f"ALTER SYSTEM SET synchronous_standby_names TO '{NAME}'")
        try:
            wait_until(
                lambda: nodes.query(node, _SYNCHRONOUS, [NAME]) == [()], (folder / "log").read_text
            )
            yield standby
        finally:
            if node in nodes.dead:
                nodes.revive(node)
            nodes.alter_system(node, "ALTER SYSTEM RESET synchronous_standby_names")
    finally:
        if (standby.folder / "postmaster.pid").exists():
            standby.run("pg_ctl", "-D", standby.folder, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)
