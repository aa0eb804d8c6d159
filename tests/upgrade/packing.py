"""Checks of packed days in an upgrade to this release and in a return to the earlier release.

In the right order, web server and consumer are replaced before `partitions maintain` of this
release runs. In the wrong order, they are replaced after it. Before a return to the earlier
release, the days must be unpacked.
"""

import json
from datetime import timedelta
from typing import Any

from annals.embedded import logins
from tests.attack.web import run_gunicorn
from tests.consuming import ROOT, MessageFeed, wait_until
from tests.messages import NOW
from tests.upgrade.stand import PATHS, UpgradeStand

# A moment of a day that `maintain` packs.
FINISHED_DAY = NOW - timedelta(days=5)
MESSAGES = 400


def run_maintain(stand: UpgradeStand) -> dict[str, Any]:
    """Run `partitions maintain` of this release, and return its JSON output."""
    lines = stand.run_command(ROOT, "partitions", "maintain", "--json").splitlines()
    result: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return result


def send_finished_day(stand: UpgradeStand) -> None:
    """Send versions of a finished day, and wait until they are stored."""
    stand.feed.dates = [FINISHED_DAY]
    stand.feed.send_many(MESSAGES)
    wait_until(lambda: stand.database.count_read() == MESSAGES, "not read")


def send_again(stand: UpgradeStand) -> None:
    """Send the messages of send_finished_day() again, and check that each counts as repeated."""
    read_before = stand.database.count_read()
    second_feed = MessageFeed(
        stand.broker.make_client_config() | {"log_level": 0}, documents=stand.feed.documents
    )
    second_feed.dates = [FINISHED_DAY]
    second_feed.send_many(MESSAGES)
    wait_until(lambda: stand.database.count_read() == read_before + MESSAGES, "not read again")
    assert stand.database.count_stored() == stand.feed.produced


def list_statuses(stand: UpgradeStand) -> list[int]:
    """Request each of PATHS from the running web server, and return the HTTP statuses."""
    assert stand.web is not None
    return [stand.web.send_request(path).status for path in PATHS]


def check_wrong_order(stand: UpgradeStand) -> None:
    """Check that `maintain` packs nothing while the earlier web server and consumer run."""
    running = stand.start_consumer(stand.earlier)
    send_finished_day(stand)
    with stand.serve_web(stand.earlier):
        assert set(list_statuses(stand)) == {200}
        stand.prepare_tables(ROOT)
        result = run_maintain(stand)
        assert (result["packed"], result["broken"], result["exitCode"]) == ([], [], 0)
        assert "annals-consume" in result["packing_waits"]
        assert f"(annals, {logins.WEB}" in result["packing_waits"]
        assert set(list_statuses(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def check_right_order(stand: UpgradeStand) -> None:
    """Check that `maintain` packs a day when web server and consumer run this release."""
    running = stand.start_consumer(ROOT)
    with stand.serve_web(ROOT):
        result = run_maintain(stand)
        assert result["packed"], result
        assert (result["packing_waits"], result["broken"]) == ("", [])
        assert set(list_statuses(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def check_return_to_earlier_release(stand: UpgradeStand) -> None:
    """Check that the earlier release refuses packed days, and works after they are unpacked."""
    stand.consumers.root = stand.earlier
    refused_consumer = stand.consumers.start_consumer(**stand.get_environment(stand.earlier))
    assert refused_consumer.process.wait(60) == 1, refused_consumer.read_log()
    refused_consumer.kill_process()
    assert "form_2_needs_stop" in refused_consumer.read_log()
    env = stand.get_environment(stand.earlier) | {
        "DATABASE_URL": stand.database.build_url(logins.WEB)
    }
    with run_gunicorn(
        env, stand.folder, "--workers", "1", root=stand.earlier, ready="/healthz"
    ) as web:
        assert {web.send_request(path).status for path in (*PATHS, "/readyz")} == {503}
    output = stand.run_command(ROOT, "partitions", "unpack", "--all")
    assert "No day is packed: an earlier release can read every day." in output
    running = stand.start_consumer(stand.earlier)
    with stand.serve_web(stand.earlier, "/healthz"):
        assert set(list_statuses(stand)) == {200}
        send_again(stand)
    running.terminate(10)


def check_all_orders(stand: UpgradeStand) -> None:
    """Check an upgrade in both orders of its steps, and a return to the earlier release."""
    check_wrong_order(stand)
    check_right_order(stand)
    check_return_to_earlier_release(stand)
