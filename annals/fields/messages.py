"""Settings of the way of messages from Kafka into the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from annals.fields.store import Store


class Messages(Store, frozen=True, kw_only=True):
    """Kafka, what its messages look like, and how many are stored at a time."""

    kafka_bootstrap_servers: Annotated[
        str | None,
        Meta(
            description="Addresses of the Kafka brokers, `host:port,host:port`. "
            "Unset: an embedded broker under ANNALS_HOME."
        ),
    ] = None
    consumer_group: Annotated[
        str, Meta(min_length=1, description="Kafka consumer group that `annals consume` joins.")
    ] = "annals"
    librdkafka_file: Annotated[
        Path | None,
        Meta(
            description="Properties file with librdkafka settings, one `name=value` per line, for "
            "example passwords and certificates. `ANNALS_KAFKA_*` variables override it."
        ),
    ] = None
    entities_file: Annotated[
        Path | None,
        Meta(
            description="TOML file that declares the kinds of entities; see docs/kinds.md. Unset: "
            "the five kinds of a loan application."
        ),
    ] = None
    envelopes_file: Annotated[
        Path | None,
        Meta(
            description="JSON file that says where the fields of a topic's messages are, if they "
            "are not where the message contract has them; see docs/kafka.md."
        ),
    ] = None
    sources_file: Annotated[
        Path | None,
        Meta(
            description="TOML file that says which services `annals gaps heal` asks for "
            "versions that never arrived; see docs/gaps.md. Unset: only the service of "
            "ANNALS_FALLBACK_URL, if there is one."
        ),
    ] = None
    writers: Annotated[
        int,
        Meta(
            ge=1,
            le=8,
            description="Batches that a consumer writes at the same time, each over a connection "
            "of its own.",
        ),
    ] = 2
    batch_rows: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="Maximum messages in the transactions that a consumer has at a time: each "
            "of its ANNALS_WRITERS gets its share.",
        ),
    ] = 10_000
    batch_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=268_435_456,
            description="Maximum bytes of messages in the transactions that a consumer has at a "
            "time; a message above the share of its writer gets a transaction of its own. Twice as "
            "many are in memory.",
        ),
    ] = 16_777_216
    max_bad_in_a_row: Annotated[
        int,
        Meta(ge=1, description="Number of consecutive bad messages that halts a topic partition."),
    ] = 1_000
    max_bad_ratio: Annotated[
        float,
        Meta(
            gt=0,
            le=1,
            description="Share of bad messages among the last ANNALS_BAD_WINDOW_MESSAGES that "
            "halts a topic partition.",
        ),
    ] = 0.5
    bad_window_messages: Annotated[
        int,
        Meta(
            ge=10,
            description="Number of latest messages over which ANNALS_MAX_BAD_RATIO is computed.",
        ),
    ] = 2_000
