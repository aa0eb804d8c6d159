"""`scripts/demo`: runs all of Annals on this machine, with embedded servers, until Ctrl-C."""

import argparse
import os
import sys
import time

from annals.configuration import env
from annals.demo import check, shop
from annals.demo.client import LOGINS, DemoClient, DemoClientError
from annals.demo.supervisor import (
    ANNALS_COMMAND,
    DemoError,
    DemoSupervisor,
    StopRequestedError,
    print_step,
)
from annals.embedded import logins, process
from annals.embedded.process import EmbeddedError

FIRST_PORT, PORTS = 8000, 100
FIRST_LOAD = ("--applications", "40", "--days", "30", "--json")
CONTINUOUS_LOAD = ("--rps", "2")
SHOWCASE_TIMEOUT_S = 20


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Run Annals on this machine: an embedded PostgreSQL and broker, simulated "
        "applications, the consumer and the web. Ctrl-C stops everything. Stored data stays in "
        "ANNALS_HOME (default .annals) for the next start.",
    )
    add = parser.add_argument
    add("--port", type=int, help=f"port of the web; default: the first free port from {FIRST_PORT}")
    add(
        "--no-simulate",
        action="store_true",
        help="produce no messages: other programs fill the topics",
    )
    add(
        "--with-shop",
        action="store_true",
        help="also start the service examples/shop: Annals keeps what changes in it",
    )
    add(
        "--check",
        action="store_true",
        help="run everything on a small load in a temporary directory, verify what is stored and "
        "served, and exit with 0 or 1",
    )
    return parser.parse_args(argv)


def set_environment(with_shop: bool) -> None:
    """Set the environment variables of the demo, and those of the shop if it is to be started."""
    for name in sorted(env.UNPREFIXED_NAMES & set(os.environ)):
        print(f"{name} is set but ignored: the demo starts its own servers.")
        del os.environ[name]
    os.environ["ANNALS_DEMO"] = "true"
    # People who try the demo see the screens in the language of their browser.
    os.environ.setdefault("ANNALS_LANGUAGE", "auto")
    if with_shop:
        if not shop.KINDS.exists():
            raise DemoError(
                f"{shop.SHOP} does not exist: only a clone of Annals has the example shop."
            )
        os.environ["ANNALS_ENTITIES_FILE"] = str(shop.KINDS)


def choose_port(requested: int | None) -> int:
    """Return the requested port, or the first free one.

    Raises:
        DemoError: The port is in use, or no port is free.
    """
    last = FIRST_PORT + PORTS - 1
    for number in range(FIRST_PORT, last + 1) if requested is None else [requested]:
        if process.choose_free_ports([number]) == [number]:
            return number
    if requested is None:
        raise DemoError(f"No port from {FIRST_PORT} to {last} is free. Give another with --port.")
    raise DemoError(f"Port {requested} is in use. Without --port the demo finds a free port.")


def serve_annals(demo: DemoSupervisor, port: int, options: argparse.Namespace) -> None:
    """Start the processes of Annals, print the addresses, and wait until the demo ends.

    Raises:
        StopRequestedError: Somebody stopped the demo.
        DemoError: A process ended.
    """
    shop_environment = shop.prepare_shop(demo) if options.with_shop else None
    demo.start_process("consume", ANNALS_COMMAND, "consume", login=logins.CONSUMER)
    for login in (logins.OWNER, logins.CONSUMER):
        demo.start_process(f"cron-{login}", "-m", "annals.demo.cron", login, login=login)
    demo.start_web(port)
    address = f"http://localhost:{port}"
    print_step("Logs", str(demo.logs))
    print_step("Screens", f"{address}/admin/")
    print_step("API", f"{address}/api/docs/")
    print_step("Logins", "the password of each is its name")
    for login, rights in LOGINS.items():
        print_step("", f"{login:<13}{rights}")
    if shop_environment is not None:
        serve_shop(demo, shop_environment, address)
    if not options.no_simulate:
        identifier = find_showcase(demo, address)
        demo.start_process("simulate", ANNALS_COMMAND, "simulate", *CONTINUOUS_LOAD)
        if identifier is None:
            print_step("Look at", "nothing yet: the first applications are still being stored")
        else:
            print_step("Look at", f"{address}/admin/history/product-instance/{identifier}/")
    print_step("", "Ctrl-C stops everything. Stored data is kept for the next start.")
    demo.wait_until(lambda: False)


def serve_shop(demo: DemoSupervisor, environment: dict[str, str], address: str) -> None:
    """Start the web of the shop and print its address. `address` is the address of Annals."""
    port = choose_port(None)
    shop.serve_shop(demo, port, environment)
    print_step("Shop", f"http://localhost:{port}/admin/")
    print_step(
        "", f"{' and '.join(shop.LOGINS)} change prices and orders; the password is the name"
    )
    print_step("", f"what they change: {address}/admin/history/product/{shop.SKU}/")


def find_showcase(demo: DemoSupervisor, address: str) -> str | None:
    """Return the id of a stored application with many versions and children.

    An earlier start may have noted the id in ANNALS_HOME. Otherwise, messages are simulated first.
    Returns None if the application is not stored within SHOWCASE_TIMEOUT_S.
    """
    client = DemoClient(address, "support", "support")
    file = demo.home / "showcase"
    if file.exists() and is_stored(client, file.read_text()):
        return file.read_text()
    identifier: str = demo.run_process(
        "first-load", ANNALS_COMMAND, "simulate", *FIRST_LOAD
    ).read_answer()["showcase"]
    deadline = time.monotonic() + SHOWCASE_TIMEOUT_S
    demo.wait_until(lambda: is_stored(client, identifier) or time.monotonic() > deadline)
    if not is_stored(client, identifier):
        return None
    file.write_text(identifier)
    return identifier


def is_stored(client: DemoClient, identifier: str) -> bool:
    try:
        return bool(client.get_data(f"history/product-instance/{identifier}", pageSize=1))
    except DemoClientError:  # 404: not stored yet
        return False


def main(argv: list[str]) -> int:
    options = parse_arguments(argv)
    began = time.monotonic()
    try:
        set_environment(options.with_shop)
        home = env.read_settings(os.environ).home.resolve()
        if options.check:
            return check.run_check(began, options.with_shop)
        with DemoSupervisor(home) as demo:
            port = choose_port(options.port)
            demo.start_servers()
            demo.wait_for_end(demo.make_tables())
            print_step(
                "Tables", "one partition per day, from the start of retention to some days ahead"
            )
            serve_annals(demo, port, options)
    except StopRequestedError:
        print("\nEverything has stopped.")
        return 0
    except (DemoError, EmbeddedError, env.SettingError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
