"""The forecast of losses from the retention of the brokers, and messages that are already lost."""

import json
import time

import pytest
from confluent_kafka import Producer, TopicPartition

from annals.embedded.broker import KafkaServer
from history.kinds.entities import ENTITIES
from ingest.kafka.retention import BrokerForecaster
from tests.consuming import ConsumerStarter
from tests.kafka import brokers
from tests.messages import make_value
from tests.processes import consumers, database, server

pytestmark = pytest.mark.kafka
__all__ = ["consumers", "database", "server"]

HURRIED, CALM = ENTITIES[0].topics[0], ENTITIES[1].topics[0]
# The embedded broker returns only settings that were set for the topic, so all of them are set.
RETENTION_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "retention.bytes": "-1",
    "segment.ms": "604800000",
    "segment.bytes": "1048576",
}


@pytest.fixture
def topics() -> list[str]:
    """Return no topics: each test of this module creates its topic, with RETENTION_SETTINGS."""
    return []


def produce_old_messages(
    broker: KafkaServer, topic: str, count: int, age: float = 0.0, partition: int = 0
) -> float:
    """Produce good messages with a timestamp of `age` seconds ago, and return this timestamp."""
    producer = Producer({**broker.make_client_config(), "acks": "all"})
    seconds = time.time() - age
    for number in range(count):
        if number == count - 1:
            # The last message gets a batch of its own, because the embedded broker says that a
            # partition ends after the first message of its last batch.
            producer.flush(60)
        body = make_value(id=f"d{number % 50}", version=number // 50, productInstanceId="a1")
        producer.produce(topic, body, partition=partition, timestamp=int(seconds * 1000))
    assert producer.flush(60) == 0
    return int(seconds * 1000) / 1000


def test_forecast_uses_retention_of_the_brokers(broker: KafkaServer) -> None:
    """The brokers keep one topic for an hour and one forever. One partition is read to its end."""
    brokers.create_topics(broker, [HURRIED], partitions=2, settings=RETENTION_SETTINGS)
    brokers.create_topics(
        broker, [CALM], partitions=1, settings={**RETENTION_SETTINGS, "retention.ms": "-1"}
    )
    oldest = produce_old_messages(broker, HURRIED, 100, age=1000)
    produce_old_messages(broker, HURRIED, 100, age=50)
    produce_old_messages(broker, CALM, 1)
    forecaster = BrokerForecaster(str(broker.make_client_config()["bootstrap.servers"]), {})
    positions = {(HURRIED, 0): 10, (HURRIED, 1): 0, (CALM, 0): 0, ("missing", 0): 5}
    log_forecasts = forecaster.fetch_log_forecasts({**positions})
    forecaster.close()
    assert log_forecasts.keys() == positions.keys() - {("missing", 0)}

    log, forecast = log_forecasts[HURRIED, 0].log, log_forecasts[HURRIED, 0].forecast
    assert forecast is not None
    assert (log.start, log.end, forecast.unread) == (0, 200, 190)
    size = len(make_value(id="d1", version=1, productInstanceId="a1"))
    assert log.message_bytes is not None
    assert size < log.message_bytes < size + 40
    assert forecast.at == oldest + 3600
    assert forecast.kept_seconds == 3600.0

    empty = log_forecasts[HURRIED, 1].forecast
    assert empty is not None
    assert (empty.unread, empty.at) == (0, pytest.approx(time.time() + 3600, abs=60))
    calm = log_forecasts[CALM, 0].forecast
    assert calm is not None
    assert (calm.unread, calm.at, calm.kept_seconds) == (1, None, None)


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_forecast_reports_messages_that_broker_deleted_unread(
    broker: KafkaServer, consumers: ConsumerStarter
) -> None:
    brokers.create_topics(broker, [HURRIED], partitions=1, settings=RETENTION_SETTINGS)
    produce_old_messages(broker, HURRIED, 100)
    assert consumers.consume_to_end("--topics", HURRIED)["stored"] == 100
    produce_old_messages(broker, HURRIED, 100)
    admin = brokers.make_admin_client(
        broker
    )  # without a name the client would be collected too early
    [deleted] = admin.delete_records([TopicPartition(HURRIED, 0, 130)]).values()
    deleted.result(120)
    forecaster = BrokerForecaster(str(broker.make_client_config()["bootstrap.servers"]), {})
    forecast = forecaster.fetch_log_forecasts({(HURRIED, 0): 100})[HURRIED, 0].forecast
    forecaster.close()
    assert forecast is not None
    assert (forecast.deleted, forecast.unread) == (30, 70)
    ended = consumers.run_command("ledger")
    sentence = f"{HURRIED}[0]: the broker has deleted 30 messages that were not read"
    assert (ended.returncode, f"LOST {sentence}" in ended.stdout) == (1, True)
    ended = consumers.run_command("ledger", "--json")
    result = json.loads(ended.stdout)
    assert (ended.returncode, result["ok"], result["faults"]) == (1, False, [sentence])


@pytest.mark.parametrize("broker", ["apache"], indirect=True)
def test_ledger_forecasts_losses_before_any_consumer_ran(
    broker: KafkaServer, consumers: ConsumerStarter
) -> None:
    brokers.create_topics(broker, [HURRIED], partitions=1, settings=RETENTION_SETTINGS)
    produce_old_messages(broker, HURRIED, 100, age=1800)
    output = consumers.run_command("ledger").stdout
    assert f"UNREAD {HURRIED}[0] (never read): 100 messages; data will be lost in 29 min" in output
    [result] = consumers.read_ledger()["losses"]
    assert (result["topic"], result["unread"]) == (HURRIED, 100)
    assert result["lossSeconds"] == pytest.approx(1750, abs=50)
    assert result["catchUpSeconds"] is not None


@pytest.mark.parametrize("broker", ["embedded"], indirect=True)
def test_no_forecast_is_given_when_broker_has_no_retention_settings(
    broker: KafkaServer, consumers: ConsumerStarter
) -> None:
    brokers.create_topics(broker, [HURRIED], partitions=1)
    produce_old_messages(broker, HURRIED, 2)
    assert f"NO FORECAST {HURRIED}: " in consumers.run_command("ledger").stdout
