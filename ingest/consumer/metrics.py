"""The metrics of the consumer. Only consumers import this."""

from typing import Final

from history.common.metric import MetricRegister
from ingest.consumer.metric_labels import (
    CLIENT,
    OUTCOMES,
    PLACE,
    TOPIC,
)
from ingest.messages.rejection import Reason

REGISTER: Final = MetricRegister("each consumer, at its `--metrics-port`")

MESSAGES = REGISTER.add_counter(
    "annals_messages_total",
    "messages",
    "Messages by what became of them.",
    topic=TOPIC,
    became=OUTCOMES,
)
REJECTS = REGISTER.add_counter(
    "annals_quarantined_total",
    "messages",
    "Messages quarantined, by reason.",
    topic=TOPIC,
    reason=tuple(Reason),
)
CLIENTS = REGISTER.add_counter(
    "annals_client_messages_total",
    "messages",
    "Good messages written, repeats included, by the client service that made them.",
    client=CLIENT,
)
WRITE_SECONDS = REGISTER.add_histogram(
    "annals_write_seconds",
    "seconds",
    "Time to write one batch.",
    (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
LAG = REGISTER.add_gauge(
    "annals_lag_messages", "messages", "Messages at the broker and not read yet.", **PLACE
)
PAUSED = REGISTER.add_gauge(
    "annals_paused", "0 or 1", "1 while reading is paused until the database has caught up."
)
# The endpoint of the metrics answers even while the loop hangs. Only this metric shows a hang.
TURN = REGISTER.add_gauge(
    "annals_consumer_turn_timestamp_seconds",
    "Unix time",
    "When the consumer's loop last ran.",
)
IN_FLIGHT_SECONDS = REGISTER.add_gauge(
    "annals_batch_in_flight_seconds",
    "seconds",
    "Age of the oldest batch that is being written; 0 while none is.",
)
DATABASE_UP = REGISTER.add_gauge(
    "annals_database_up", "0 or 1", "0 while a write is repeated after an error, else 1."
)
DATABASE_UP.set(1)
LOGIN_REFUSED = REGISTER.add_gauge(
    "annals_login_refused",
    "0 or 1",
    "1 while PostgreSQL or a broker does not accept the login of this consumer, which worked "
    "before.",
    server=("kafka", "postgresql"),
)
for _server in ("kafka", "postgresql"):
    LOGIN_REFUSED.labels(_server).set(0)
RETRIES = REGISTER.add_counter(
    "annals_write_retries_total",
    "writes",
    "Attempts to write that failed and that the consumer repeats.",
)
LOGS_TRUNCATED = REGISTER.add_counter(
    "annals_logs_cut_total",
    "topic partitions",
    "Topic partitions with a log that was truncated at the broker.",
)
