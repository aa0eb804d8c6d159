"""Core tests on each PostgreSQL and broker of this machine; prints a table.

PostgreSQL: the embedded one, and the oldest of Debian's packages. Ends with 1 if a test fails.
"""

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

from annals.embedded import postgres, process

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
# Numbers of pytest's last line.
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
# What docs/operations.md asks of a server, as far as tests of its own need it.
SETTINGS = {"max_locks_per_transaction": "352", "fsync": "off", "timezone": "UTC"}


@dataclass(frozen=True, slots=True)
class Row:
    """One run."""

    what: str
    counts: str
    seconds: float
    good: bool

    def __str__(self) -> str:
        return f"| {self.what} | {self.counts} | {self.seconds:.0f} |"


def cache() -> Path:
    place = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(place) / "annals" / "matrix"


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
    owner = postgres.user_for_data(data)
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


def run(what: str, words: tuple[str, ...], log: Path, url: str = "") -> Row:
    """One run of pytest, at low priority."""
    env = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
    env["ANNALS_TEST_BOTH_BROKERS"] = "1"
    if url:
        env["ANNALS_TEST_DATABASE_URL"] = url
    began = time.monotonic()
    with log.open("w") as file:
        done = subprocess.run(
            ["nice", "-n", "2", sys.executable, "-m", "pytest", "-q", *words],
            cwd=ROOT, env=env, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
    lines = log.read_text().splitlines() or [""]
    counts = ", ".join(" ".join(each) for each in COUNTS.findall(lines[-1])) or lines[-1][:80]
    return Row(what, counts, time.monotonic() - began, done.returncode == 0)


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
    print("| tested | tests | seconds |\n|---|---|---|", flush=True)
    rows: list[Row] = []

    def note(row: Row) -> None:
        rows.append(row)
        print(row, flush=True)

    store = tuple(options.tests)
    with debian() as (name, url):
        note(run("store: PostgreSQL 18 (embedded)", store, options.logs / "store.log"))
        if url:
            note(run(f"store: {name}", store, options.logs / "store-debian.log", url))
        for broker in ("embedded", "apache"):
            log = options.logs / f"{broker}.log"
            which = f"{broker} and ({options.consumer})" if options.consumer else broker
            note(run(f"consumer: {broker} broker", (*KAFKA, "-k", which), log))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
