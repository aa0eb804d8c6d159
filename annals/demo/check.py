"""`scripts/demo --check`: runs everything once on a small load and verifies the result."""

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from annals.demo import json_patch, masked, people, produced, shop
from annals.demo.client import Client, ClientError
from annals.demo.port import Port, hold
from annals.demo.produced import Produced
from annals.demo.supervisor import Supervisor, print_step
from annals.embedded import logins, process

LOAD = ("--messages", "2000", "--days", "20", "--seed", "7", "--json")
REPEATS = 25
PAGE_SIZE = 7  # small, so that most timelines have several pages


class CheckError(AssertionError):
    """A result is wrong; the text says which."""


def run(
    manage: str, prepare: Callable[[Supervisor], None], began: float, with_shop: bool = False
) -> int:
    """Exit code: 0 if everything is right. Leaves no process and no file behind.

    with_shop: change a price in the example shop, too. began: time.monotonic() at the start of the
    demo. Raises what Supervisor raises.
    """
    home = Path(tempfile.mkdtemp(prefix="annals-check-"))
    problem: Exception | None = None
    try:
        with Supervisor(home) as demo:
            try:
                prepare(demo)
                address = _check(demo, manage)
                if with_shop:
                    _shop(demo, manage, Client(address, "support", "support"))
            except (CheckError, ClientError, shop.ShopError) as error:
                problem = error
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{f'WRONG: {problem}' if problem else 'All right.'} {time.monotonic() - began:.0f} s")
    return 1 if problem else 0


def _check(demo: Supervisor, manage: str) -> str:
    """The address of the web, which still runs."""
    load = demo.run("simulate", manage, "simulate", *LOAD)
    showcase = load.answer()["showcase"]
    produced.add_bad_and_repeated(REPEATS)
    expected = produced.read()
    print_step(
        "Produced",
        f"{expected.messages:,} messages: {expected.versions:,} versions of "
        f"{len(expected.documents):,} documents, {expected.repeated} repeats, {expected.bad} bad",
    )
    _consumed(demo, manage, expected)
    port = _port()
    demo.web(port)
    address = f"http://{process.HOST}:{port.number}"
    client = Client(address, "support", "support")
    _served(Client(address, "underwriter", "underwriter"), expected)
    _masked(address, expected)
    application = f"/admin/history/product-instance/{showcase}/"
    page = client.screen(application)
    _same("the application's screen", showcase in page and "support" in page, True)
    print_step("Screens", f"support sees {application}")
    _logged_in(address, application)
    return address


def _port() -> Port:
    port = hold(0)
    if port is None:
        raise CheckError("no port is free")
    return port


def _shop(demo: Supervisor, manage: str, reader: Client) -> None:
    """A price that a person changes in the shop is in Annals."""
    environment = shop.prepare(demo, manage)
    demo.start("consume", manage, "consume", login=logins.CONSUMER)
    port = _port()
    shop.serve(demo, port, environment)
    seen = shop.change(demo, f"http://{process.HOST}:{port.number}", reader)
    print_step(
        "Shop",
        f"{seen.author} changed the price of {shop.SKU} from {seen.old} to {seen.new}: in the API "
        f"of Annals {seen.milliseconds:.0f} ms after the form was sent to the shop",
    )


def _logged_in(address: str, application: str) -> None:
    """Each login opens its own screens and no others, and the privacy officer reads who looked."""
    reader, operator = [application], [people.QUARANTINE]
    expected = dict.fromkeys(people.LOGINS, reader) | {
        "ops": operator,
        "privacy": [*reader, people.JOURNAL],
        "admin": reader + operator,
    }
    _same("the screens of each login", people.opened(address, application), expected)
    journal = Client(address, "privacy", "privacy").screen(people.JOURNAL)
    missing = [login for login in people.LOGINS if f"?login={login}" not in journal]
    _same("logins that are not in the access journal", missing, [])
    print_step("Logins", f"{', '.join(expected)}: each its own screens; privacy sees who looked")


def _consumed(demo: Supervisor, manage: str, expected: Produced) -> None:
    consumer = logins.CONSUMER
    demo.run("consume", manage, "consume", "--until-idle", "2", "--json", login=consumer)
    ledger = demo.run("ledger", manage, "ledger", "--json", login=consumer)
    totals = ledger.answer()["totals"]
    _same("read", totals["read"], expected.messages)
    _same("stored", totals["stored"], expected.versions)
    _same("repeated", totals["repeated"], expected.repeated)
    _same("quarantined", totals["quarantined"], expected.bad)
    print_step(
        "Stored",
        f"{totals['stored']:,} versions, {totals['repeated']} repeats, "
        f"{totals['quarantined']} in quarantine; the ledger adds up",
    )


def _served(client: Client, expected: Produced) -> None:
    """Read every timeline to its last page; compare the versions with what was produced, and
    apply every diff."""
    versions = diffs = 0
    for (entity, identifier), messages in expected.documents.items():
        where = f"{entity} {identifier}"
        shown = {each["version"]: each for each in client.timeline(entity, identifier, PAGE_SIZE)}
        _same(f"{where}: versions", sorted(shown), sorted(messages))
        for number, version in shown.items():
            place = f"{where} version {number}"
            for name in ("entity", "author", "clientId", "type"):
                said = messages[number].get("data" if name == "entity" else name)
                _same(f"{place}: {name}", version[name], said)
            previous = version["previousVersion"]
            if previous is not None:
                reached = json_patch.apply(shown[previous]["entity"], version["diff"])
                _same(f"{place}: diff applied to {previous}", reached, version["entity"])
                diffs += 1
            versions += 1
    print_step(
        "Served",
        f"{versions:,} versions, each as it was produced; {diffs:,} diffs, each of which gives "
        "the version when applied to the previous one",
    )


def _masked(address: str, expected: Produced) -> None:
    """The logins that read applications masked get no sensitive value of a participant; the privacy
    officer unmasks one."""
    participants = dict(masked.sensitive(expected))
    _same("that participants have sensitive values", bool(participants), True)
    for login in people.MASKED:
        shown = masked.in_clear(Client(address, login, login), participants)
        _same(f"the sensitive values that {login} gets", shown, [])
    identifier, data = next(iter(participants.items()))
    page = masked.passport(Client(address, "privacy", "privacy"), identifier)
    _same(f"the passport of {identifier} on a page", data["passport"]["number"] in page, True)
    print_step(
        "Masked",
        f"{', '.join(masked.PATHS)} of {len(participants)} participants, for "
        f"{', '.join(people.MASKED)}; privacy unmasks one",
    )


def _same(what: str, found: Any, wanted: Any) -> None:
    if _exact(found) != _exact(wanted):
        raise CheckError(f"{what} is {found!r}, not {wanted!r}")


def _exact(value: Any) -> Any:
    """A form in which JSON's true and 1 differ; in Python they are equal."""
    if isinstance(value, dict):
        return {key: _exact(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_exact(each) for each in value]
    return (isinstance(value, bool), value)
