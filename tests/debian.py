"""A server of the oldest PostgreSQL in Debian's packages, the oldest that Annals supports.

`python -m tests.debian COMMAND...` runs a command with ANNALS_TEST_DATABASE_URL set to this server.
scripts/matrix runs tests with it.
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

# The settings of docs/operations.md that the tests need.
SETTINGS = {"max_locks_per_transaction": "704", "fsync": "off", "timezone": "UTC"}


@contextmanager
def run_debian_server() -> Iterator[str]:
    """Run a temporary PostgreSQL server of Debian's package, and yield the superuser's URL.

    Yield '' if the package is not installed.
    """
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parts[-2])
    )
    if not folders:
        yield ""
        return
    programs = folders[0]
    folder = Path(tempfile.mkdtemp(prefix="annals-debian-"))
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir(mode=0o700)
    owner = postgres.get_user_for_data(data)
    process_options = (
        {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    )
    if owner is not None:
        os.chown(data, owner.pw_uid, owner.pw_gid)
    (port,) = process.choose_free_ports([None])
    initdb = ["--pgdata", data, "--username", "annals", "--auth=trust", "--no-sync"]
    subprocess.run(
        [programs / "initdb", *initdb, "--encoding=UTF8", "--locale=C.UTF-8"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
        **process_options,
    )
    options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
    listen = [f"-p{port}", "-clisten_addresses=127.0.0.1", "-cunix_socket_directories="]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *listen, *options],
            cwd="/",
            stdout=log,
            stderr=log,
            **process_options,
        )
    try:
        readiness_command = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(readiness_command).returncode != 0:
            if server.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            time.sleep(0.2)
        yield f"postgresql://annals@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with run_debian_server() as url:
        if not url:
            sys.exit("Debian's PostgreSQL is not installed.")
        env = os.environ | {"ANNALS_TEST_DATABASE_URL": url}
        sys.exit(subprocess.run(sys.argv[1:], env=env).returncode)
