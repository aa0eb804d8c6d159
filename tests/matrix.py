"""Core tests on each PostgreSQL, Python and broker of this machine; prints a table.

PostgreSQL: the embedded one, and the oldest of Debian's packages. Python: the one of .venv, and the
newest on PATH or of pyenv, with a virtual environment in the cache. Ends with 1 if a test fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from annals.embedded import cluster, process

ROOT = Path(__file__).resolve().parents[1]
STORE = tuple(
    f"tests/db/test_{name}.py"
    for name in (
        *("migrations", "migrate", "transaction", "ledger", "late_rows", "partitions"),
        *("seals", "search_index", "timeline", "api", "grants"),
    )
)
KAFKA = (
    "tests/kafka/test_consume.py",
    "tests/system/test_faults_database.py",
    "tests/system/test_faults_upstream.py",
)
OLDEST_PYTHON = (3, 11)
# Numbers of pytest's last line.
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
# What docs/operations.md asks of a server, as far as tests of its own need it.
SETTINGS = {"max_locks_per_transaction": "352", "fsync": "off", "timezone": "UTC"}


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    what: str
    python: str
    counts: str
    seconds: float
    good: bool

    def __str__(self) -> str:
        return f"| {self.what} | {self.python} | {self.counts} | {self.seconds:.0f} |"


def cache() -> Path:
    place = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(place) / "annals" / "matrix"


def version(program: str | Path) -> tuple[int, ...]:
    """The version of a Python, empty if it does not start."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True)
    except OSError:
        return ()
    return tuple(map(int, done.stdout.split()))


def newest_python() -> Path | None:
    """The newest Python of this machine; None: .venv has it."""
    names = (f"python3.{minor}" for minor in range(OLDEST_PYTHON[1], 30))
    on_path = [Path(found) for found in map(shutil.which, names) if found is not None]
    pyenv = list((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python"))
    best = max((*on_path, *pyenv), key=version, default=None)
    if best is None or version(best)[:2] <= sys.version_info[:2]:
        return None
    return best


def environment(python: Path) -> Path:
    """The Python of a virtual environment with all packages. Raises CalledProcessError."""
    home = cache() / "python{}.{}.{}".format(*version(python))
    made = home / "bin" / "python"
    if not made.exists():
        subprocess.run([python, "-m", "venv", home], check=True)
    wanted = ROOT / "requirements-dev.txt"
    words = ["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", wanted]
    subprocess.run([made, *words], check=True)
    return made


@contextmanager
def debian(language: str = "") -> Iterator[tuple[str, str]]:
    """Name and superuser's URL of a temporary server of the oldest PostgreSQL of Debian.
    language: of its messages, such as "ru"; English without one."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parts[-2])
    )
    if not folders:
        yield "", ""
        return
    programs = folders[0]
    folder = Path(tempfile.mkdtemp(prefix="annals-matrix-"))
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir(mode=0o700)
    owner = cluster.user_for_data(data)
    given = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    if owner is not None:
        os.chown(data, owner.pw_uid, owner.pw_gid)
    (port,) = process.free_ports([None])
    initdb = ["--pgdata", data, "--username", "annals", "--auth=trust", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *initdb, "--encoding=UTF8", "--locale=C.UTF-8"],
        check=True, stdout=subprocess.DEVNULL, cwd="/", **given,
    )  # fmt: skip
    options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
    listen = [f"-p{port}", "-clisten_addresses=127.0.0.1", "-cunix_socket_directories="]
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, *listen, *options],
        cwd="/", stdout=log, stderr=log, env=os.environ | {"LANGUAGE": language}, **given,
    )  # fmt: skip
    try:
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready).returncode != 0:
            if server.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.2)
        yield (
            f"PostgreSQL {programs.parts[-2]} (Debian)",
            f"postgresql://annals@127.0.0.1:{port}/postgres",
        )
    finally:
        server.terminate()
        server.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(what: str, python: Path, words: tuple[str, ...], log: Path, url: str = "") -> Row:
    """One run of pytest, at low priority."""
    env = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
    env["ANNALS_TEST_BOTH_BROKERS"] = "1"
    if url:
        env["ANNALS_TEST_DATABASE_URL"] = url
    began = time.monotonic()
    with log.open("w") as file:
        done = subprocess.run(
            ["nice", "-n", "2", python, "-m", "pytest", "-q", *words],
            cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    lines = log.read_text().splitlines() or [""]
    counts = ", ".join(" ".join(each) for each in COUNTS.findall(lines[-1])) or lines[-1][:80]
    number = ".".join(map(str, version(python)))
    return Row(what, number, counts, time.monotonic() - began, done.returncode == 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/matrix", description=__doc__)
    parser.add_argument("--logs", type=Path, default=cache() / "logs",
        help="where the output of pytest is kept (default: %(default)s)")  # fmt: skip
    parser.add_argument("tests", nargs="*", default=list(STORE),
        help="tests of the store (default: a core selection)")  # fmt: skip
    parser.add_argument("--consumer", metavar="WORDS", default="",
        help="pytest's -k for the tests of the consumer (default: all)")  # fmt: skip
    options = parser.parse_args()
    # Servers end with it, also when it is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.logs.mkdir(parents=True, exist_ok=True)
    pythons = [Path(sys.executable)]
    if (newest := newest_python()) is not None:
        pythons.append(environment(newest))
    print("| tested | Python | tests | seconds |\n|---|---|---|---|", flush=True)
    rows: list[Row] = []

    def note(row: Row) -> None:
        rows.append(row)
        print(row, flush=True)

    with debian() as (name, url):
        for number, python in enumerate(pythons):
            store = tuple(options.tests)
            log = options.logs / f"store-{number}.log"
            note(run("store: PostgreSQL 18 (embedded)", python, store, log))
            if url:
                log = options.logs / f"store-debian-{number}.log"
                note(run(f"store: {name}", python, store, log, url))
            for broker in ("embedded", "apache"):
                log = options.logs / f"{broker}-{number}.log"
                which = f"{broker} and ({options.consumer})" if options.consumer else broker
                note(run(f"consumer: {broker} broker", python, (*KAFKA, "-k", which), log))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
