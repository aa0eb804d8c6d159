"""`scripts/demo`: runs all of Annals on this machine, with embedded servers, until Ctrl-C."""

import argparse
import os
import sys
import time

from annals import env
from annals.demo import check, shop
from annals.demo.client import LOGINS, Client, ClientError
from annals.demo.supervisor import (
    MANAGE,
    DemoError,
    StopAskedError,
    Supervisor,
    print_step,
)
from annals.embedded import logins, process
from annals.embedded.process import EmbeddedError

FIRST_PORT, PORTS = 8000, 100
FIRST_LOAD = ("--applications", "40", "--days", "30", "--json")
CONTINUOUS_LOAD = ("--rps", "2")
SHOWCASE_TIMEOUT_S = 20


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Run Annals on this machine: an embedded PostgreSQL and broker, simulated "
        "applications, the consumer and the web. Ctrl-C stops everything. Stored data stays in "
        "ANNALS_HOME (default .annals) for the next start.",
    )
    add = parser.add_argument
    add("--port", type=int,
        help=f"port of the web; default: the first free port from {FIRST_PORT}")  # fmt: skip
    add(
        "--no-simulate",
        action="store_true",
        help="produce no messages: other programs fill the topics",
    )
    add("--with-shop", action="store_true",
        help="also start the service examples/shop: Annals keeps what changes in it")  # fmt: skip
    add("--check", action="store_true",
        help="run everything on a small load in a temporary directory, verify what is stored and "
        "served, and exit with 0 or 1")  # fmt: skip
    return parser.parse_args(given)


def environment(with_shop: bool) -> None:
    """Set the demo mode, and declare the documents of the shop."""
    for name in sorted(env.EXACT & set(os.environ)):
        print(f"{name} is set but ignored: the demo starts its own servers.")
        del os.environ[name]
    os.environ["ANNALS_DEMO"] = "true"
    # Whoever looks at it first has some language in the browser.
    os.environ.setdefault("ANNALS_LANGUAGE", "auto")
    if with_shop:
        if not shop.KINDS.exists():
            raise DemoError(
                f"{shop.SHOP} is not there: the example shop is in a clone of Annals only."
            )
        os.environ["ANNALS_ENTITIES_FILE"] = str(shop.KINDS)


def free_port(asked: int | None) -> int:
    """The asked port, or the first free one. Raises DemoError if there is none."""
    last = FIRST_PORT + PORTS - 1
    for number in range(FIRST_PORT, last + 1) if asked is None else [asked]:
        if process.free_ports([number]) == [number]:
            return number
    if asked is None:
        raise DemoError(f"No port from {FIRST_PORT} to {last} is free: use --port.")
    raise DemoError(f"Port {asked} is in use. Without --port the demo finds a free port.")


def serve(demo: Supervisor, port: int, options: argparse.Namespace) -> None:
    """Start everything else and print the addresses. Returns only by an exception."""
    shop_environment = shop.prepare(demo) if options.with_shop else None
    demo.start("consume", MANAGE, "consume", login=logins.CONSUMER)
    for login in (logins.OWNER, logins.CONSUMER):
        demo.start(f"cron-{login}", "-m", "annals.demo.cron", login, login=login)
    demo.web(port)
    address = f"http://localhost:{port}"
    print_step("Logs", str(demo.logs))
    print_step("Screens", f"{address}/admin/")
    print_step("API", f"{address}/api/docs/")
    print_step("Logins", "the password of each is its name")
    for login, may in LOGINS.items():
        print_step("", f"{login:<13}{may}")
    if shop_environment is not None:
        serve_shop(demo, shop_environment, address)
    if not options.no_simulate:
        identifier = showcase(demo, address)
        demo.start("simulate", MANAGE, "simulate", *CONTINUOUS_LOAD)
        if identifier is None:
            print_step("Look at", "nothing yet: the first applications are still being stored")
        else:
            print_step("Look at", f"{address}/admin/history/product-instance/{identifier}/")
    print_step("", "Ctrl-C stops everything. Stored data is kept for the next start.")
    demo.wait(lambda: False)


def serve_shop(demo: Supervisor, environment: dict[str, str], address: str) -> None:
    """Start the web of the shop and print its address. address: of Annals."""
    port = free_port(None)
    shop.serve(demo, port, environment)
    print_step("Shop", f"http://localhost:{port}/admin/")
    print_step(
        "", f"{' and '.join(shop.LOGINS)} change prices and orders; the password is the name"
    )
    print_step("", f"what they change: {address}/admin/history/product/{shop.SKU}/")


def showcase(demo: Supervisor, address: str) -> str | None:
    """The id of a stored application with many versions and children; None if there is none within
    SHOWCASE_TIMEOUT_S. A file keeps it for the next start; it may be wrong by then."""
    client = Client(address, "support", "support")
    file = demo.home / "showcase"
    if file.exists() and stored(client, file.read_text()):
        return file.read_text()
    identifier: str = demo.run("first-load", MANAGE, "simulate", *FIRST_LOAD).answer()["showcase"]
    deadline = time.monotonic() + SHOWCASE_TIMEOUT_S
    demo.wait(lambda: stored(client, identifier) or time.monotonic() > deadline)
    if not stored(client, identifier):
        return None
    file.write_text(identifier)
    return identifier


def stored(client: Client, identifier: str) -> bool:
    try:
        return bool(client.get(f"history/product-instance/{identifier}", pageSize=1))
    except ClientError:  # not yet: 404
        return False


def main(given: list[str]) -> int:
    options = arguments(given)
    began = time.monotonic()
    try:
        environment(options.with_shop)
        home = env.read(os.environ).home.resolve()
        if options.check:
            return check.run(began, options.with_shop)
        with Supervisor(home) as demo:
            port = free_port(options.port)
            demo.servers()
            demo.finish(demo.make_tables())
            print_step(
                "Tables", "one partition per day, from the start of retention to some days ahead"
            )
            serve(demo, port, options)
    except StopAskedError:
        print("\nEverything has stopped.")
        return 0
    except (DemoError, EmbeddedError, env.SettingError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
