"""Packed days in an upgrade, in the wrong order and in the right one, and the way back."""

import json
from datetime import timedelta
from typing import Any

from annals.embedded import logins
from tests.attack.web import gunicorn
from tests.consuming import ROOT, Feed, until
from tests.messages import NOW
from tests.upgrade.stand import PATHS, Stand

# Of a day that `maintain` packs.
OLD = NOW - timedelta(days=5)
MESSAGES = 400


def maintain(stand: Stand) -> dict[str, Any]:
    """Run `partitions maintain` of this release. Return what it did."""
    printed = stand.manage(ROOT, "partitions", "maintain", "--json").splitlines()
    did: dict[str, Any] = json.loads(next(line for line in printed if line.startswith("{")))
    return did


def fill(stand: Stand) -> None:
    """Send versions of a finished day, and wait until they are stored."""
    stand.feed.dates = [OLD]
    stand.feed.send(MESSAGES)
    until(lambda: stand.database.read() == MESSAGES, "not read")


def send_again(stand: Stand) -> None:
    """Send all of these messages a second time: each must count as a repeat."""
    before = stand.database.read()
    again = Feed(stand.broker.client() | {"log_level": 0}, documents=stand.feed.documents)
    again.dates = [OLD]
    again.send(MESSAGES)
    until(lambda: stand.database.read() == before + MESSAGES, "not read again")
    assert stand.database.stored() == stand.feed.produced


def answers(stand: Stand) -> list[int]:
    """Return the status of each answer of the web that is asked now."""
    assert stand.web is not None
    return [stand.web.get(path).status for path in PATHS]


def wrong_order(stand: Stand) -> None:
    """Run `maintain` of this release while web and consumer of the earlier one run."""
    running = stand.start(stand.earlier)
    fill(stand)
    with stand.serving(stand.earlier):
        assert set(answers(stand)) == {200}
        stand.tables(ROOT)
        did = maintain(stand)
        assert (did["packed"], did["broken"], did["exitCode"]) == ([], [], 0)
        assert "annals-consume" in did["packing_waits"]
        assert f"(annals, {logins.WEB}" in did["packing_waits"]
        assert set(answers(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def right_order(stand: Stand) -> None:
    """Replace both, then run `maintain`: the day is packed, and nothing fails or is doubled."""
    running = stand.start(ROOT)
    with stand.serving(ROOT):
        did = maintain(stand)
        assert did["packed"], did
        assert (did["packing_waits"], did["broken"]) == ("", [])
        assert set(answers(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def way_back(stand: Stand) -> None:
    """The earlier release refuses packed days, and works once they are unpacked."""
    stand.consumers.root = stand.earlier
    refused = stand.consumers.start(**stand.environment(stand.earlier))
    assert refused.process.wait(60) == 1, refused.said()
    refused.kill()
    assert "form_2_needs_stop" in refused.said()
    env = stand.environment(stand.earlier) | {"DATABASE_URL": stand.database.url_of(logins.WEB)}
    with gunicorn(env, stand.folder, "--workers", "1", root=stand.earlier, ready="/healthz") as web:
        assert {web.get(path).status for path in (*PATHS, "/readyz")} == {503}
    said = stand.manage(ROOT, "partitions", "unpack", "--all")
    assert "No day is packed: an earlier release can read every day." in said
    running = stand.start(stand.earlier)
    with stand.serving(stand.earlier, "/healthz"):
        assert set(answers(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def scenes(stand: Stand) -> None:
    """All of them, one after the other."""
    wrong_order(stand)
    right_order(stand)
    way_back(stand)
