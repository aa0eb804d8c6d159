"""The end of a soak: everything comes to rest, then everything is counted and compared."""

import json
import time
from collections import Counter

from annals.embedded import logins
from tests.soak import compare
from tests.soak.run import Soak
from tests.soak.stand import HOLD, RETENTION

PATIENCE_S = 300
# Outside of faults: a process hashes one password at a time, and refuses who waits for 2 seconds.
BUSY = 0.01
# Days until what came too early on the last one is good.
AT_LEAST = 2


def end(soak: Soak) -> None:
    """Let everything come to rest, then count."""
    if soak.result.sampler is not None:
        soak.result.sampler.stop()
    soak.traffic.wait()
    soak.traffic.close()
    for each in soak.people:
        each.stop()
    soak.recorder.stop()
    _await_read(soak)
    for _ in range(AT_LEAST):
        soak.stand.clock.next_day()
        soak.chores()
    for _ in range(RETENTION + HOLD):  # at least one day leaves for the archive
        if not any(soak.stand.archive.rglob("manifest.json")):
            soak.stand.clock.next_day()
            soak.chores()
    _count(soak)


def _await_read(soak: Soak) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        [(read,)] = soak.stand.query("SELECT coalesce(sum(read), 0) FROM ingest_ledger")
        if read >= soak.recorder.messages:
            return
        if time.monotonic() > deadline:
            soak.result.faults.append(f"{read} of {soak.recorder.messages} messages were read")
            return
        time.sleep(0.5)


def _count(soak: Soak) -> None:
    traffic, recorder, stand = soak.traffic, soak.recorder, soak.stand
    totals = json.loads(soak.manage("ledger", "--json", login=logins.CONSUMER))["totals"]
    special = traffic.bad + traffic.early + 2 * traffic.repeats + traffic.filled
    delivered = traffic.delivered() + special
    _same(soak, "messages in the topics", recorder.messages, delivered)
    for name, wanted in {
        "read": recorder.messages,
        "stored": len(recorder.versions),
        "repeated": recorder.repeated,
        "expired": 0,
        "quarantined": recorder.bad,
        "lag": 0,
    }.items():
        _same(soak, f"the ledger's {name}", totals[name], wanted)
    [(open_,)] = stand.query(
        "SELECT count(*) FROM ingest_quarantine WHERE status NOT IN ('resolved', 'discarded')"
    )
    _same(soak, "messages left in quarantine", open_, 0)
    there = compare.found(stand.postgres.url(), stand.archive)
    soak.result.faults += compare.wrong(recorder.versions, there)
    answers: Counter[str] = sum((each.answers for each in soak.people), start=Counter())
    _judge_answers(soak)
    soak.result.facts += [
        ("days that passed", f"{stand.clock.days}; retention {RETENTION}"),
        ("messages", f"{recorder.messages:,}: {len(recorder.versions):,} versions, "
         f"{recorder.repeated} repeats, {recorder.bad} bad, {traffic.early} too early"),
        ("ledger", ", ".join(f"{name} {value:,}" for name, value in totals.items())),
        ("found again", f"{there.tables:,} versions in the tables, {there.archive:,} in the "
         f"archive, {there.both:,} of them in both; every one compared"),
        ("web", f"{sum(each.logins for each in soak.people)} people logged in; "
         + ", ".join(f"{what} {count:,}" for what, count in sorted(answers.items()))),
        ("commands", ", ".join(
            f"{name} {code}: {soak.codes.count((name, code))}"
            for name, code in sorted(set(soak.codes)))),
    ]  # fmt: skip


def _same(soak: Soak, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        soak.result.faults.append(f"{what}: {found}, not {wanted}")


def _judge_answers(soak: Soak) -> None:
    """Answers with an error: while the database restarts only 503, else only few 503."""
    busy, answers = 0, sum(each.answers.total() for each in soak.people)
    for each in soak.people:
        for moment, status, text in each.failures:
            if status != "503":
                soak.result.faults.append(f"the web: {text}")
            elif not soak.restarts.during("database", moment):
                busy += 1
    said = f"{busy} of {answers:,} answers were 503 outside of the restart of the database"
    soak.result.facts.append(("busy", said))
    if busy > BUSY * answers:
        soak.result.faults.append(said)
