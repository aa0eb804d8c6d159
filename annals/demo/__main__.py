"""`scripts/demo`: the whole of Annals on this machine, on embedded servers, until Ctrl-C."""

import argparse
import os
import sys
import time
from pathlib import Path

from annals import env
from annals.demo import check
from annals.demo.client import Client, ClientError
from annals.demo.supervisor import DemoError, StopAskedError, Supervisor, say
from annals.embedded import process
from annals.embedded.process import EmbeddedError

MANAGE = str(Path(__file__).resolve().parent.parent.parent / "manage.py")
FIRST_PORT, PORTS = 8000, 100
LOGINS = ("support", "auditor", "ops", "admin")
BURST = ("--applications", "40", "--days", "30", "--json")
PATIENCE_S = 20
FLOW = ("--rps", "2")


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Annals on this machine: an embedded PostgreSQL and broker, simulated "
        "applications, the consumer and the web. Ctrl-C ends everything; what is stored "
        "stays in ANNALS_HOME (default .annals) for the next time.",
    )
    add = parser.add_argument
    add("--port", type=int, help=f"port of the web; default: the first free from {FIRST_PORT} on")
    add("--no-simulate", action="store_true", help="produce nothing: the topics are yours to fill")
    add("--check", action="store_true", help="do it all on a small load in a directory of its own, "
        "verify what is stored and served, and exit")  # fmt: skip
    return parser.parse_args(given)


def environment() -> None:
    """Settings for a demo. A DATABASE_URL or KAFKA_BOOTSTRAP_SERVERS is not used: invented
    applications have no business on a real server."""
    for name in sorted(env.EXACT & set(os.environ)):
        print(f"{name} is set and not used: the demo has servers of its own.")
        del os.environ[name]
    os.environ["ANNALS_DEMO"] = "true"


def free_port(asked: int | None) -> int:
    """The asked port, or the first free one. Raises DemoError."""
    if asked is not None:
        if process.free_ports([asked]) != [asked]:
            raise DemoError(f"Port {asked} is taken. Without --port a free one is found.")
        return asked
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        if process.free_ports([port]) == [port]:
            return port
    raise DemoError(f"No free port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1}; give --port.")


def prepare(demo: Supervisor) -> None:
    """Servers, tables, days, and the people who make the changes."""
    os.environ["ANNALS_HOME"] = str(demo.home)
    say("Annals", f"in {demo.home}")
    demo.servers()
    demo.run("migrate", MANAGE, "migrate", "--verbosity", "0")
    demo.run("partitions", MANAGE, "partitions", "maintain")
    people = str(demo.home / "people.csv")
    demo.run("people", MANAGE, "simulate", "--people-csv", people)
    demo.run("people", MANAGE, "people", "import", people)
    say("Tables", "every day from the retention's start to some days ahead")


def serve(demo: Supervisor, port: int, simulate: bool) -> None:
    """Everything running, and its address printed; returns only by an exception."""
    demo.start("consume", MANAGE, "consume")
    demo.web(port)
    address = f"http://localhost:{port}"
    say("Logs", str(demo.logs))
    say("Screens", f"{address}/admin/")
    say("API", f"{address}/api/docs/")
    say("Logins", ", ".join(f"{login}/{login}" for login in LOGINS))
    if simulate:
        worth = showcase(demo, address)
        demo.start("simulate", MANAGE, "simulate", *FLOW)
        say("Look at", f"{address}/admin/history/product-instance/{worth}/")
    say("", "Ctrl-C ends everything; what is stored is there again next time.")
    demo.wait(lambda: False)


def showcase(demo: Supervisor, address: str) -> str:
    """The id of an application with many versions and children, which is stored by now."""
    note = demo.home / "showcase"
    if not note.exists():
        burst = demo.run("burst", MANAGE, "simulate", *BURST)
        note.write_text(burst.answer()["showcase"])
    found = note.read_text()
    client = Client(address, LOGINS[0], LOGINS[0])
    deadline = time.monotonic() + PATIENCE_S
    demo.wait(lambda: stored(client, found) or time.monotonic() > deadline)
    return found


def stored(client: Client, identifier: str) -> bool:
    try:
        return bool(client.get(f"history/product-instance/{identifier}", pageSize=1))
    except ClientError:  # not yet: 404
        return False


def main(given: list[str]) -> int:
    options = arguments(given)
    began = time.monotonic()
    try:
        environment()
        home = env.read(os.environ).home.resolve()
        if options.check:
            return check.run(MANAGE, prepare, began)
        with Supervisor(home) as demo:
            port = free_port(options.port)
            prepare(demo)
            serve(demo, port, simulate=not options.no_simulate)
    except StopAskedError:
        print("\nEverything has ended.")
        return 0
    except (DemoError, EmbeddedError, env.SettingError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
