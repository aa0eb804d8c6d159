"""The simulated stream: the contract's messages, the target sizes and lives, and real changes; and
what the options of `simulate` come to."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import islice, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annals.demo.simulator import (
    MEAN_MESSAGES,
    Message,
    Plan,
    PlanError,
    count_messages,
    plan,
    stream,
)
from annals.demo.words import NEWCOMERS, PEOPLE, write_csv
from annals.management.commands.simulate import Tally
from history.entities import BY_NAME, BY_TOPIC, ROOT
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, ChangeType
from tests.messages import SIMULATED

# Bytes of a message value, and versions of a document, by quantile.
SIZES = {0.25: 1_356, 0.5: 1_647, 0.75: 1_934, 0.9: 2_650, 0.95: 3_310, 0.99: 6_501}
VERSIONS = {0.5: 4, 0.95: 12, 0.99: 22}
MEAN_BYTES, LEAST_BYTES, MOST_BYTES = 1_785, 200, 36_864
START = datetime(2026, 3, 29, 23, 59, 50, tzinfo=UTC)
APPLICATIONS = 4_400
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Envelope(msgspec.Struct, rename="camel", omit_defaults=True):
    """The contract's message, its types strict."""

    id: str
    version: int
    type: str
    updated_at: str
    client_id: str
    data: dict[str, Any] | None
    author: str | None = None
    product_instance_id: str | None = None


@pytest.fixture(scope="module")
def messages() -> Sequence[Message]:
    return list(stream(20, START, applications=APPLICATIONS))


@pytest.fixture(scope="module")
def documents(messages: Sequence[Message]) -> dict[bytes, list[Message]]:
    found = defaultdict(list)
    for message in messages:
        found[message.key].append(message)
    return found


def quantiles(values: Iterable[int], wanted: Iterable[float]) -> dict[float, int]:
    ordered = sorted(values)
    return {quantile: ordered[int(quantile * len(ordered))] for quantile in wanted}


def test_sizes_are_the_target(messages: Sequence[Message]) -> None:
    sizes = [len(message.value) for message in messages]
    assert quantiles(sizes, SIZES) == pytest.approx(SIZES, rel=0.05)
    assert sum(sizes) / len(sizes) == pytest.approx(MEAN_BYTES, rel=0.03)
    assert LEAST_BYTES <= min(sizes) < 1.2 * LEAST_BYTES
    assert 0.7 * MOST_BYTES < max(sizes) <= MOST_BYTES


def test_versions_of_a_document_are_the_target(messages: Sequence[Message]) -> None:
    complete = [message.version + 1 for message in messages if message.complete]
    assert quantiles(complete, VERSIONS) == VERSIONS


def test_shares(messages: Sequence[Message], documents: dict[bytes, list[Message]]) -> None:
    kinds = Counter(message.entity for message in messages)
    types = Counter(message.type for message in messages)
    assert kinds[ROOT.name] / len(messages) == pytest.approx(0.8, abs=0.015)
    assert set(kinds) == set(SIMULATED)
    assert min(kinds.values()) > 200
    assert types[ChangeType.DELETE] > 100
    assert types[ChangeType.CREATE] == len(documents)


def test_every_message_keeps_the_contract(messages: Sequence[Message]) -> None:
    decode = msgspec.json.Decoder(Envelope).decode
    for message in messages:
        envelope = decode(message.value)
        assert message.key == envelope.id.encode()
        assert 1 <= len(envelope.id) <= ID_LENGTH
        assert 1 <= len(envelope.client_id) <= CLIENT_ID_LENGTH
        assert envelope.author is None or 1 <= len(envelope.author) <= AUTHOR_LENGTH
        assert envelope.data is not None or envelope.type == "DELETE"
        assert (envelope.product_instance_id is None) == (message.entity == ROOT.name)
        assert BY_TOPIC[message.topic] is BY_NAME[message.entity]
        moment = datetime.fromisoformat(envelope.updated_at[:26]).replace(tzinfo=UTC)
        assert moment == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            microseconds=message.updated_at
        )
        assert (envelope.version, ChangeType[envelope.type]) == (message.version, message.type)
        assert (envelope.client_id, envelope.author) == (message.client_id, message.author)
        assert envelope.product_instance_id in (None, message.product_instance_id)


def test_moments_have_up_to_nine_digits_and_no_offset(messages: Sequence[Message]) -> None:
    moments = [msgspec.json.decode(message.value)["updatedAt"] for message in messages[:5_000]]
    digits = Counter(len(moment.partition(".")[2]) for moment in moments)
    assert set(digits) == {3, 6, 9}
    assert digits[9] > len(moments) / 2


def test_versions_grow_by_one_in_time_from_create_to_the_end(
    documents: dict[bytes, list[Message]],
) -> None:
    twins = 0
    for history in documents.values():
        assert [message.version for message in history] == list(range(len(history)))
        assert history[0].type is ChangeType.CREATE
        assert [message.complete for message in history] == [*[False] * (len(history) - 1), True]
        assert all(message.type is ChangeType.UPDATE for message in history[1:-1])
        for one, following in pairwise(history):
            assert one.updated_at <= following.updated_at
            twins += one.updated_at == following.updated_at
    assert 0.001 < twins / sum(map(len, documents.values())) < 0.03


def test_children_name_an_application_that_is_there(messages: Sequence[Message]) -> None:
    there: set[str] = set()
    for message in messages:
        if message.entity != ROOT.name:
            assert message.product_instance_id in there
        elif message.type is ChangeType.CREATE:
            there.add(message.product_instance_id)
        elif message.type is ChangeType.DELETE:
            there.remove(message.product_instance_id)
    assert len(there) > 0.9 * APPLICATIONS


def test_changes_are_real(documents: dict[bytes, list[Message]]) -> None:
    """Nearly every version changes a business field, and the ones asked for do change."""
    changed: Counter[str] = Counter()
    idle = versions = 0
    technical = {"modifiedAt", "modifiedBy", "etag", "hash"}
    for history in islice(documents.values(), 2_000):
        snapshots = [msgspec.json.decode(message.value)["data"] for message in history]
        for before, after in pairwise(snapshots):
            if after is None:
                continue
            fields = {name for name in before | after if before.get(name) != after.get(name)}
            assert {"modifiedAt", "etag"} & fields
            assert ("hash" in fields) == bool(fields - technical)
            changed.update(fields)
            versions += 1
            idle += not fields - technical
    assert 0 < idle < 0.08 * versions
    wanted = "status rate amount documents comments closedAt encumbrance assignee income vin"
    assert set(wanted.split()) <= set(changed)


def test_money_comes_as_text_and_as_exact_numbers(messages: Sequence[Message]) -> None:
    first = next(m for m in messages if m.entity == ROOT.name and m.version == 0)
    data = msgspec.json.decode(first.value, type=dict[str, msgspec.Raw])["data"]
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    assert bytes(fields["amount"]).endswith(b'.0"')
    assert len(bytes(fields["baseRate"]).partition(b".")[2]) == 2
    assert len(bytes(fields["monthlyPayment"]).partition(b".")[2]) == 2


def test_lists_hold_objects_with_distinct_pids(messages: Sequence[Message]) -> None:
    moved = 0
    order: dict[bytes, list[str]] = {}
    for message in messages[:20_000]:
        data = msgspec.json.decode(message.value)["data"] or {}
        for items in (value for value in data.values() if isinstance(value, list)):
            pids = [item["pid"] for item in items]
            assert len(set(pids)) == len(pids)
        if "documents" in data:
            now = [paper["pid"] for paper in data["documents"]]
            before = order.get(message.key, now)
            moved += [pid for pid in before if pid in now] != [pid for pid in now if pid in before]
            order[message.key] = now
    assert moved > 10


def test_authors_are_people_of_the_list_but_for_newcomers(messages: Sequence[Message]) -> None:
    known = {person.login for person in PEOPLE if person.kind == "person"}
    services = {person.login for person in PEOPLE if person.kind == "service"}
    authors = Counter(message.author for message in messages)
    assert known < set(authors)
    assert set(authors) == known | {None} | set(NEWCOMERS)
    assert 0.05 < authors[None] / len(messages) < 0.5
    assert {message.client_id for message in messages} <= services


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(), applications=st.integers(0, 30), together=st.integers(1, 300))
def test_the_same_seed_and_start_give_the_same_bytes(
    seed: int, applications: int, together: int
) -> None:
    first = list(stream(seed, START, applications=applications, side_by_side=together))
    again = list(stream(seed, START, applications=applications, side_by_side=together))
    assert first == again
    assert len(first) == count_messages(seed, applications)
    assert sum(m.type is ChangeType.CREATE and m.entity == ROOT.name for m in first) == applications
    assert all(LEAST_BYTES <= len(message.value) <= MOST_BYTES for message in first)


def test_another_seed_gives_other_documents() -> None:
    first, other = (
        {message.key for message in stream(seed, START, applications=50)} for seed in (1, 2)
    )
    assert min(len(first), len(other)) > 50
    assert not first & other


def test_an_endless_stream_goes_on_and_keeps_its_step() -> None:
    step = timedelta(seconds=7)
    sent = list(islice(stream(5, START, step=step, side_by_side=20), 3_000))
    begin = START.timestamp() * 1e6
    for number, message in enumerate(sent):
        assert message.updated_at <= begin + (number + 1) * 7e6
    assert sent[-1].updated_at > begin + 2_900 * 7e6
    applications = sum(m.type is ChangeType.CREATE and m.entity == ROOT.name for m in sent)
    assert applications == pytest.approx(len(sent) / MEAN_MESSAGES, rel=0.2)


def test_applications_live_side_by_side() -> None:
    sent = list(islice(stream(5, START, side_by_side=50), 5_000))[2_000:3_000]
    switches = sum(one.key != other.key for one, other in pairwise(sent))
    assert switches > 0.9 * len(sent)
    assert len({message.product_instance_id for message in sent}) > 50


def test_the_mean_of_an_application_is_as_the_plan_takes_it() -> None:
    assert count_messages(8, 3_000) / 3_000 == pytest.approx(MEAN_MESSAGES, rel=0.03)


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        next(stream(1, datetime(2026, 1, 1), applications=1))  # noqa: DTZ001


def test_without_options_it_runs_on_at_200_a_second() -> None:
    todo = plan(NOW, 1)
    assert (todo.rps, todo.messages, todo.applications) == (200.0, None, None)
    assert (todo.start, todo.step) == (NOW, timedelta(milliseconds=5))


def test_the_nearest_bound_ends_it() -> None:
    whole = count_messages(1, 10)
    assert plan(NOW, 1, applications=10).messages == whole
    assert plan(NOW, 1, applications=10, messages=7).messages == 7
    assert plan(NOW, 1, applications=10, seconds=0.1).messages == 20
    assert plan(NOW, 1, rps=0.0, seconds=5.0).messages is None


@pytest.mark.parametrize("bounds", [{"applications": 120}, {"messages": 1_000}])
@pytest.mark.parametrize("days", [0.5, 30.0])
def test_days_end_now_and_begin_that_long_ago(bounds: dict[str, int], days: float) -> None:
    todo = plan(NOW, 4, days=days, **bounds)
    sent = list(planned(todo))
    moments = [datetime.fromtimestamp(message.updated_at / 1e6, UTC) for message in sent]
    assert max(moments) <= NOW
    assert timedelta(days=days) * 0.98 < max(moments) - min(moments) <= timedelta(days=days)
    assert todo.rps == 0


def planned(todo: Plan) -> Iterator[Message]:
    sent = stream(
        todo.seed,
        todo.start,
        applications=todo.applications,
        step=todo.step,
        side_by_side=todo.side_by_side,
    )
    return islice(sent, todo.messages)


def test_lives_over_past_days_last_for_days() -> None:
    todo = plan(NOW, 4, days=60.0, applications=300)
    lives: dict[str, list[int]] = {}
    for message in planned(todo):
        lives.setdefault(message.product_instance_id, []).append(message.updated_at)
    days = sorted((max(life) - min(life)) / 86_400e6 for life in lives.values())
    assert 0.5 < days[len(days) // 2] < 8


def test_days_without_a_bound_are_refused() -> None:
    with pytest.raises(PlanError, match="--applications, --messages, or --seconds"):
        plan(NOW, 1, days=3.0)
    with pytest.raises(PlanError):
        plan(NOW, 1, days=3.0, seconds=10.0)


def test_the_showcase_is_an_application_with_children_and_versions() -> None:
    sent = list(stream(1, NOW, applications=200))
    tally = Tally()
    for message in sent:
        tally.add(message)
    own = [message for message in sent if message.product_instance_id == tally.showcase]
    assert len({message.key for message in own}) >= 4
    assert len(own) >= 12


def test_people_are_written_as_people_import_reads_them() -> None:
    out = StringIO()
    count = write_csv(out)
    rows = list(csv.DictReader(StringIO(out.getvalue())))
    assert len(rows) == count == len(PEOPLE)
    assert rows[0] == {"login": "m.prygunov", "full_name": "Прыгунов Максим", "kind": "person"}
    assert {row["kind"] for row in rows} == {"person", "service"}
    assert len({row["login"] for row in rows}) == count
    assert not {row["login"] for row in rows} & set(NEWCOMERS)
    assert all(0 < len(row["login"]) <= min(AUTHOR_LENGTH, CLIENT_ID_LENGTH) for row in rows)
