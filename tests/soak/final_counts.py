"""The end of a soak: wait until everything is read and settled, then count and compare."""

import json
import time
from collections import Counter

from annals.embedded import logins
from tests.soak import compare
from tests.soak.run import Soak
from tests.soak.stand import HOLD, RETENTION

PATIENCE_S = 300
# The share of answers that may be 503 without a fault. A web process hashes one password at a time,
# and refuses a login that has waited for 2 seconds.
BUSY_SHARE = 0.01
# How many days pass until messages that came too early on the last day are good.
LAST_DAYS = 2


def end_soak(soak: Soak) -> None:
    """End the load and compare all stored versions with the messages that were sent.

    Before the comparison the consumers read all messages, and the clock moves ahead until retention
    has written at least one day to the archive.
    """
    if soak.result.sampler is not None:
        soak.result.sampler.stop_sampling()
    soak.traffic.wait_for_simulators()
    soak.traffic.flush_producer()
    for person in soak.people:
        person.stop_person()
    soak.recorder.stop_recording()
    _wait_until_read(soak)
    for _ in range(LAST_DAYS):
        soak.stand.clock.move_to_next_day()
        soak.do_nightly_work()
    for _ in range(RETENTION + HOLD):  # until at least one day is in the archive
        if not any(soak.stand.archive.rglob("manifest.json")):
            soak.stand.clock.move_to_next_day()
            soak.do_nightly_work()
    _count_and_compare(soak)


def _wait_until_read(soak: Soak) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        [(read,)] = soak.stand.query("SELECT coalesce(sum(read), 0) FROM ingest_ledger")
        if read >= soak.recorder.messages:
            return
        if time.monotonic() > deadline:
            soak.result.faults.append(f"{read} of {soak.recorder.messages} messages were read")
            return
        time.sleep(0.5)


def _count_and_compare(soak: Soak) -> None:
    traffic, recorder, stand = soak.traffic, soak.recorder, soak.stand
    totals = json.loads(soak.run_command("ledger", "--json", login=logins.CONSUMER))["totals"]
    special = traffic.bad + traffic.early + 2 * traffic.repeats + traffic.filled
    delivered = traffic.count_delivered() + special
    _require_equal(soak, "messages in the topics", recorder.messages, delivered)
    for name, expected in {
        "read": recorder.messages,
        "stored": len(recorder.versions),
        "repeated": recorder.repeated,
        "expired": 0,
        "quarantined": recorder.bad,
        "lag": 0,
    }.items():
        _require_equal(soak, f"the ledger's {name}", totals[name], expected)
    [(open_count,)] = stand.query(
        "SELECT count(*) FROM ingest_quarantine WHERE status NOT IN ('resolved', 'discarded')"
    )
    _require_equal(soak, "messages left in quarantine", open_count, 0)
    stored_versions = compare.load_stored(stand.postgres.build_url(), stand.archive)
    soak.result.faults += compare.describe_differences(recorder.versions, stored_versions)
    answers: Counter[str] = sum((person.answers for person in soak.people), start=Counter())
    _judge_answers(soak)
    soak.result.facts += [
        ("days that passed", f"{stand.clock.days}; retention {RETENTION}"),
        (
            "messages",
            f"{recorder.messages:,}: {len(recorder.versions):,} versions, "
            f"{recorder.repeated} repeats, {recorder.bad} bad, {traffic.early} too early",
        ),
        ("ledger", ", ".join(f"{name} {value:,}" for name, value in totals.items())),
        (
            "found again",
            f"{stored_versions.tables:,} versions in the tables, "
            f"{stored_versions.archive:,} in the archive, "
            f"{stored_versions.in_both:,} of them in both; every one compared",
        ),
        (
            "web",
            f"{sum(person.logins for person in soak.people)} people logged in; "
            + ", ".join(f"{kind} {count:,}" for kind, count in sorted(answers.items())),
        ),
        (
            "commands",
            ", ".join(
                f"{name} {code}: {soak.codes.count((name, code))}"
                for name, code in sorted(set(soak.codes))
            ),
        ),
    ]


def _require_equal(soak: Soak, subject: str, actual: object, expected: object) -> None:
    if actual != expected:
        soak.result.faults.append(f"{subject}: {actual}, not {expected}")


def _judge_answers(soak: Soak) -> None:
    """Report wrong answers of the web server as faults of the soak.

    503 is right during the restart of the database. At other times at most the share BUSY_SHARE of
    all answers can be 503.
    """
    busy, answers = 0, sum(person.answers.total() for person in soak.people)
    for person in soak.people:
        for moment, status, text in person.failures:
            if status != "503":
                soak.result.faults.append(f"the web: {text}")
            elif not soak.restarts.is_during("database", moment):
                busy += 1
    sentence = f"{busy} of {answers:,} answers were 503 outside of the restart of the database"
    soak.result.facts.append(("busy", sentence))
    if busy > BUSY_SHARE * answers:
        soak.result.faults.append(sentence)
