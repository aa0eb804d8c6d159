"""An embedded PostgreSQL: starts, stops and finds the server of one directory.

It listens on TCP on the loopback address and asks for a password. It has no Unix socket,
because the path of a socket could be too long. Directory: `data/`, `password` of the superuser
and `LOGIN.password` of each other login (0600), `port`, `server.log`, `lock`.
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psycopg
from psycopg import sql

from annals.embedded import cluster, logins, process, secret_file
from annals.embedded.process import EmbeddedError

USER = "annals"
DATABASE = "annals"

Settings = Mapping[str, str | int]
Mode = Literal["smart", "fast", "immediate"]

# Keep rows and parameters out of the server's log (docs/decisions/0009-logs.md). Without an error's
# message the rest is only needed for what a session or a library turns on.
QUIET_LOG: Settings = {
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_duration_statement": -1,
    "log_min_duration_sample": -1,
    "log_transaction_sample_rate": 0,
    "log_parameter_max_length": 0,
    "log_parameter_max_length_on_error": 0,
    "session_preload_libraries": "",
    "shared_preload_libraries": "",
}

SETTINGS: Settings = {
    **QUIET_LOG,
    "listen_addresses": process.HOST,
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    # One lock per partition and index: a query over all days of all entities needs thousands.
    "max_locks_per_transaction": 352,
}

SIGNALS: Mapping[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

# In the server's log: backends of a killed server still hold its shared memory; the port is used.
OLD_BACKENDS = "shared memory block"
PORT_IN_USE = "could not bind"


class Postgres:
    """The server in the directory `home`, which is created at the first start.

    settings: values of postgresql.conf that override SETTINGS; written at each start.
    """

    def __init__(self, home: str | Path, settings: Settings | None = None) -> None:
        self.home = Path(home).resolve()
        self.data = self.home / "data"
        self.log = self.home / "server.log"
        self.settings: dict[str, str | int] = {**SETTINGS, **(settings or {})}

    def start(self, timeout: float = 120) -> bool:
        """Start the server and create the database `annals` and its owner if they do not exist.
        Returns False if the server was running already.

        Returns when the server accepts connections, after crash recovery. Several processes may
        call it at once. Raises EmbeddedError with the end of the server's log.
        """
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if not self.data.exists():
                sync = self.settings.get("fsync") != "off"
                cluster.initialise(self.data, USER, self._new_password(), sync)
            if pid is None:
                cluster.check_version(self.data)
                self._launch(timeout)
            else:
                self._await_ready(pid, timeout)
            self._create_database()
            return pid is None

    def stop(self, mode: Mode = "fast", timeout: float = 60) -> bool:
        """Shut down as `pg_ctl -m MODE stop` does. Returns False if no server was running.

        A server that does not end in `timeout` seconds is stopped by SIGQUIT, then by SIGKILL.
        """
        with process.exclusive(self.home / "lock"):
            pid = self.pid()
            if pid is None:
                return False
            for sign in (SIGNALS[mode], signal.SIGQUIT, signal.SIGKILL):
                if process.end(pid, self._marker, sign, timeout):
                    return True
            raise EmbeddedError(f"PostgreSQL (pid {pid}) in {self.data} does not end")

    def kill(self) -> None:
        """Send SIGKILL to the server, as the system does when memory runs out."""
        pid = self.pid()
        if pid is not None:
            process.end(pid, self._marker, signal.SIGKILL, 10)

    def running(self) -> bool:
        """Whether the server runs and accepts connections."""
        return self.pid() is not None and self._pid_lines()[7:8] == ["ready"]

    def pid(self) -> int | None:
        """The process id of the running server, whoever started it; None if it does not run."""
        first = "".join(self._pid_lines()[:1])
        if first.isdigit() and process.alive(int(first), self._marker):
            return int(first)
        return None

    def port(self) -> int:
        """The TCP port. It stays the same over starts unless another program uses it."""
        return int((self.home / "port").read_text())

    def url(self, database: str = DATABASE, login: str = USER) -> str:
        """The URI of `database`, with the password of the login: the superuser, or one of
        annals.embedded.logins. Call it after `start`."""
        file = self.home / "password" if login == USER else self.password_file(login)
        return f"postgresql://{login}:{file.read_text()}@{process.HOST}:{self.port()}/{database}"

    def password_file(self, login: str) -> Path:
        """The file with the password of a login other than the superuser."""
        return logins.password_file(self.home, login)

    @property
    def _marker(self) -> str:
        return f"-D {self.data}"

    def _pid_lines(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().split("\n")]
        except FileNotFoundError:
            return []

    def _new_password(self) -> str:
        return secret_file.write(self.home / "password", secret_file.new_password()).read_text()

    def _launch(self, timeout: float) -> None:
        """Start the process. Retry for a while if backends of a killed server are in the way."""
        for _ in range(50):
            file = self.home / "port"
            known = self.port() if secret_file.written(file) else None
            [port] = process.free_ports([known])
            secret_file.write(file, str(port))
            cluster.write_settings(self.data, {**self.settings, "port": port})
            cluster.mark_pid_file_stale(self.data)
            offset = self.log.stat().st_size if self.log.exists() else 0
            argv = (cluster.programs() / "postgres", "-D", self.data)
            owner = cluster.user_for_data(self.data)
            pid = process.spawn(argv, self.log, self.data, cluster.environment(), owner)
            if self._await_ready(pid, timeout):
                return
            output = process.tail(self.log, offset)
            if OLD_BACKENDS not in output and PORT_IN_USE not in output:
                break
            time.sleep(0.2)
        raise EmbeddedError(f"PostgreSQL in {self.home} does not start:\n{output}")

    def _await_ready(self, pid: int, timeout: float) -> bool:
        """Wait until the server `pid` accepts connections; False if it ended instead."""
        process.wait(
            lambda: self.running() or not process.alive(pid, self._marker),
            timeout,
        )
        if self.running():
            return True
        if process.alive(pid, self._marker):
            raise EmbeddedError(f"PostgreSQL in {self.home} is not ready after {timeout} s")
        return False

    def _connect(self) -> psycopg.Connection[tuple[bool]]:
        # `local`: otherwise commits wait for a synchronous standby that does not run.
        options = "-c synchronous_commit=local"
        return psycopg.connect(self.url("postgres"), autocommit=True, options=options)

    def _create_database(self) -> None:
        known = "SELECT pg_is_in_recovery() OR EXISTS (SELECT FROM pg_database WHERE datname = %s)"
        with self._connect() as connection:
            row = connection.execute(known, [DATABASE]).fetchone()
            if row != (True,):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
            row = connection.execute("SELECT pg_is_in_recovery()").fetchone()
        if row != (True,):
            logins.create_owner(self.home, self.url(), DATABASE)
