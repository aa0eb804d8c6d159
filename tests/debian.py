"""A server of the oldest PostgreSQL of Debian's packages, the oldest that Annals supports.

`python -m tests.debian COMMAND...` runs a command whose tests use it, as scripts/matrix does.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from annals.embedded import postgres, process

# What docs/operations.md asks of a server, as far as tests of its own need it.
SETTINGS = {"max_locks_per_transaction": "352", "fsync": "off", "timezone": "UTC"}


@contextmanager
def debian() -> Iterator[str]:
    """The superuser's URL of a temporary server; empty if there is no such package."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parts[-2])
    )
    if not folders:
        yield ""
        return
    programs = folders[0]
    folder = Path(tempfile.mkdtemp(prefix="annals-debian-"))
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
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *listen, *options],
            cwd="/", stdout=log, stderr=log, **given,
        )  # fmt: skip
    try:
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready).returncode != 0:
            if server.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.2)
        yield f"postgresql://annals@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with debian() as url:
        if not url:
            sys.exit("Debian's PostgreSQL is not installed.")
        env = os.environ | {"ANNALS_TEST_DATABASE_URL": url}
        sys.exit(subprocess.run(sys.argv[1:], env=env).returncode)
