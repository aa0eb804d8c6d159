"""What the options of `simulate` come to: bounds, pace, days; and the report and the people."""

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest

from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH
from ingest.simulator.actors import NEWCOMERS, PEOPLE, write_csv
from ingest.simulator.document import Message
from ingest.simulator.report import report
from ingest.simulator.run_plan import Asked, PlanError, plan
from ingest.simulator.stream import count_messages, stream
from ingest.simulator.tally import Tally

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_without_options_it_runs_on_at_200_a_second() -> None:
    todo = plan(Asked(seed=1), NOW)
    assert (todo.rps, todo.messages, todo.applications) == (200.0, None, None)
    assert (todo.start, todo.step) == (NOW, timedelta(milliseconds=5))


def test_the_nearest_bound_ends_it() -> None:
    whole = count_messages(1, 10)
    assert plan(Asked(1, applications=10), NOW).messages == whole
    assert plan(Asked(1, applications=10, messages=7), NOW).messages == 7
    assert plan(Asked(1, applications=10, seconds=0.1), NOW).messages == 20
    assert plan(Asked(1, rps=0.0, seconds=5.0), NOW).messages is None


@pytest.mark.parametrize("bounds", [{"applications": 120}, {"messages": 1_000}])
@pytest.mark.parametrize("days", [0.5, 30.0])
def test_days_end_now_and_begin_that_long_ago(bounds: dict[str, int], days: float) -> None:
    todo = plan(Asked(4, days=days, **bounds), NOW)
    sent = list(
        stream(
            todo.seed,
            todo.start,
            applications=todo.applications,
            step=todo.step,
            side_by_side=todo.side_by_side,
        )
        if todo.applications
        else _first(todo.messages or 0, todo.start, todo.step, todo.side_by_side)
    )
    moments = [datetime.fromtimestamp(message.updated_at / 1e6, UTC) for message in sent]
    assert max(moments) <= NOW
    assert timedelta(days=days) * 0.98 < max(moments) - min(moments) <= timedelta(days=days)
    assert todo.rps == 0


def _first(count: int, start: datetime, step: timedelta, side_by_side: int) -> list[Message]:
    messages = stream(4, start, step=step, side_by_side=side_by_side)
    return [next(messages) for _ in range(count)]


def test_lives_over_past_days_last_for_days() -> None:
    todo = plan(Asked(4, days=60.0, applications=300), NOW)
    sent = list(
        stream(4, todo.start, applications=300, step=todo.step, side_by_side=todo.side_by_side)
    )
    lives: dict[str, list[int]] = {}
    for message in sent:
        lives.setdefault(message.product_instance_id, []).append(message.updated_at)
    days = sorted((max(life) - min(life)) / 86_400e6 for life in lives.values())
    assert 0.5 < days[len(days) // 2] < 8


def test_days_without_a_bound_are_refused() -> None:
    with pytest.raises(PlanError, match="--applications, --messages, or --seconds"):
        plan(Asked(1, days=3.0), NOW)
    with pytest.raises(PlanError):
        plan(Asked(1, days=3.0, seconds=10.0), NOW)


def test_the_report_shows_target_and_produced() -> None:
    tally = Tally()
    for message in stream(1, NOW, applications=50):
        tally.add(message)
    text = report(tally, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert f"{tally.complete:,} of {tally.documents:,} documents complete" in text
    assert f"{tally.size_quantiles()[0.5]:,}" in text
    for word in ("1,647", "6,501", "p99", "product-car", "DELETE", "2026-05-01 12:00:00"):
        assert word in text
    assert tally.summary()["sizes"]["min"] == min(tally.sizes)


def test_the_report_of_nothing_is_not_an_error() -> None:
    assert "0 of 0 documents complete" in report(Tally(), 80)
    assert Tally().summary()["showcase"] is None


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
