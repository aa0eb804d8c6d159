"""Simulated messages meet the contract and the target distributions. The demo survives errors."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
from django.db import OperationalError
from hypothesis import given, settings
from hypothesis import strategies as st

from annals.configuration import env
from annals.demo import __main__ as demo
from annals.demo import cron
from annals.demo.simulator import (
    SimulatedMessage,
    SimulationPlan,
    count_messages,
    generate_messages,
    plan_simulation,
)
from history.documents.record import ChangeType
from history.kinds.entities import ROOT
from history.store.days.window import Window
from ingest.messages.decode import decode
from ingest.messages.message import KafkaMessage

ROOT_FOLDER = Path(__file__).parents[2]
# The target sizes of messages in bytes, and the target numbers of versions, by quantile.
SIZES = {0.25: 1_356, 0.5: 1_647, 0.75: 1_934, 0.9: 2_650, 0.95: 3_310, 0.99: 6_501}
VERSIONS = {0.5: 4, 0.95: 12, 0.99: 22}
MEAN_BYTES, LEAST_BYTES, MOST_BYTES = 1_785, 200, 36_864
START = datetime(2026, 3, 29, 23, 59, 50, tzinfo=UTC)
APPLICATIONS = 4_400
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def messages() -> Sequence[SimulatedMessage]:
    return list(generate_messages(20, START, applications=APPLICATIONS))


@pytest.fixture(scope="module")
def documents(messages: Sequence[SimulatedMessage]) -> dict[bytes, list[SimulatedMessage]]:
    actual = defaultdict(list)
    for message in messages:
        actual[message.key].append(message)
    return actual


def get_quantiles(values: Iterable[int], quantiles: Iterable[float]) -> dict[float, int]:
    ordered = sorted(values)
    return {quantile: ordered[int(quantile * len(ordered))] for quantile in quantiles}


def test_sizes_of_simulated_messages_have_the_target_distribution(
    messages: Sequence[SimulatedMessage],
) -> None:
    sizes = [len(message.value) for message in messages]
    assert get_quantiles(sizes, SIZES) == pytest.approx(SIZES, rel=0.05)
    assert sum(sizes) / len(sizes) == pytest.approx(MEAN_BYTES, rel=0.03)
    assert LEAST_BYTES <= min(sizes) < 1.2 * LEAST_BYTES
    assert 0.7 * MOST_BYTES < max(sizes) <= MOST_BYTES


def test_version_counts_of_simulated_documents_have_the_target_distribution(
    documents: dict[bytes, list[SimulatedMessage]],
) -> None:
    assert get_quantiles(map(len, documents.values()), VERSIONS) == VERSIONS


def test_simulated_messages_meet_the_message_contract(messages: Sequence[SimulatedMessage]) -> None:
    window = Window(date(2020, 1, 1), date(2030, 1, 1))
    for sent in messages:
        record = decode(KafkaMessage(sent.topic, 0, 0, -1, sent.key, sent.value), window)
        assert (record.entity, record.id.encode()) == (sent.entity, sent.key)
        assert (record.version, record.type) == (sent.version, sent.type)
        assert (record.updated_at, record.client_id) == (sent.updated_at, sent.client_id)
        assert record.author == sent.author
        application = None if sent.entity == ROOT.name else sent.product_instance_id
        assert record.product_instance_id == application


def test_versions_of_simulated_document_begin_with_create_and_grow_by_one(
    documents: dict[bytes, list[SimulatedMessage]],
) -> None:
    equal_moments = 0
    for history in documents.values():
        assert [message.version for message in history] == list(range(len(history)))
        assert history[0].type is ChangeType.CREATE
        assert all(message.type is ChangeType.UPDATE for message in history[1:-1])
        for first, following in pairwise(history):
            assert first.updated_at <= following.updated_at
            equal_moments += first.updated_at == following.updated_at
    assert 0.001 < equal_moments / sum(map(len, documents.values())) < 0.03


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(), applications=st.integers(0, 30), together=st.integers(1, 300))
def test_simulation_gives_same_bytes_when_seed_and_start_are_the_same(
    seed: int, applications: int, together: int
) -> None:
    first = list(generate_messages(seed, START, applications=applications, side_by_side=together))
    again = list(generate_messages(seed, START, applications=applications, side_by_side=together))
    assert first == again
    assert len(first) == count_messages(seed, applications)
    assert sum(m.type is ChangeType.CREATE and m.entity == ROOT.name for m in first) == applications
    assert all(LEAST_BYTES <= len(message.value) <= MOST_BYTES for message in first)


def test_simulation_ends_at_the_limit_that_is_reached_first() -> None:
    message_count = count_messages(1, 10)
    assert plan_simulation(NOW, 1, applications=10).messages == message_count
    assert plan_simulation(NOW, 1, applications=10, messages=7).messages == 7
    assert plan_simulation(NOW, 1, applications=10, seconds=0.1).messages == 20
    assert plan_simulation(NOW, 1, rps=0.0, seconds=5.0).messages is None


@pytest.mark.parametrize("bounds", [{"applications": 120}, {"messages": 1_000}])
@pytest.mark.parametrize("days", [0.5, 30.0])
def test_simulated_period_has_the_requested_length_and_ends_now(
    bounds: dict[str, int], days: float
) -> None:
    todo = plan_simulation(NOW, 4, days=days, **bounds)
    sent = list(generate_planned(todo))
    moments = [datetime.fromtimestamp(message.updated_at / 1e6, UTC) for message in sent]
    assert max(moments) <= NOW
    assert timedelta(days=days) * 0.98 < max(moments) - min(moments) <= timedelta(days=days)
    assert todo.rps == 0


def generate_planned(todo: SimulationPlan) -> Iterator[SimulatedMessage]:
    sent = generate_messages(
        todo.seed,
        todo.start,
        applications=todo.applications,
        step=todo.step,
        side_by_side=todo.side_by_side,
    )
    return islice(sent, todo.messages)


def test_simulation_of_past_days_is_refused_when_number_of_messages_is_not_limited() -> None:
    with pytest.raises(ValueError, match="--applications, --messages, or --seconds"):
        plan_simulation(NOW, 1, days=3.0)
    with pytest.raises(ValueError, match="--days needs a bound"):
        plan_simulation(NOW, 1, days=3.0, seconds=10.0)


def test_demo_continues_after_a_cron_job_failed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = (ROOT_FOLDER / "docs/operations.md").read_text()
    jobs = [job for items in cron.JOBS.values() for job in items]
    assert len(jobs) == 4
    for words, _ in jobs:
        assert f"`annals {' '.join(words)}`" in table
    cron._run_job("no-such-command")
    cron._run_job("partitions", "no-such-action")
    assert "no-such-action" in caplog.text
    monkeypatch.setattr(cron, "call_command", Mock(side_effect=OperationalError("no server")))
    cron._run_job("gaps")
    assert "annals gaps: OperationalError: no server" in caplog.text


@pytest.mark.parametrize("values, language", [(None, "auto"), ("en", "en")])
def test_demo_is_in_language_of_browser_unless_setting_names_a_language(
    values: str | None, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANNALS_DEMO", "ANNALS_LANGUAGE", "DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if values is not None:
        monkeypatch.setenv("ANNALS_LANGUAGE", values)
    demo.set_environment(with_shop=False)
    assert os.environ["ANNALS_LANGUAGE"] == language
    assert env.read_settings({"ANNALS_LANGUAGE": language}).language == language
