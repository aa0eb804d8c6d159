"""`annals consume`: reads messages from Kafka and stores them."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import resource
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils.module_loading import import_string

from history.common import memory
from history.kinds.entities import BY_TOPIC
from history.management.numbers import MAX_PORT, MAX_SECONDS, make_number_parser, make_whole_parser

if TYPE_CHECKING:
    from ingest.consumer.loop import Consumer


logger = logging.getLogger(__name__)
# With Python's default of 5 ms, the writing thread would often wait for the decoding thread.
SWITCH_INTERVAL_SECONDS = 0.0002
# Addresses that only processes of this machine can reach.
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# The exit code after --until-idle, if partitions were not read to their end.
EXIT_HALTED: Final = 3


class Command(BaseCommand):
    help = (
        "Read the topics and store every version. Stops cleanly on SIGTERM, on Ctrl-C and when "
        "its terminal is closed; on SIGUSR1 prints the stacks of its threads (functions and lines, "
        "no contents) and continues."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add(
            "--topics",
            type=_parse_topics,
            default=tuple(BY_TOPIC),
            help="comma-separated topics (default: all, live and migration)",
        )
        add(
            "--group",
            type=_parse_group,
            help="consumer group (default: that of ANNALS_CONSUMER_GROUP)",
        )
        add(
            "--until-idle",
            type=make_number_parser(0, MAX_SECONDS),
            metavar="SECONDS",
            help="exit after this many seconds without a message, with everything stored. The "
            "exit code is 0; 3 if partitions are halted and so not read to their end; 1 if missing "
            "rights, tables or topics, or a refused login, prevented reading or storing for this "
            "long (default: run until stopped)",
        )
        add("--json", action="store_true", help="print a summary as one line of JSON at the end")
        add(
            "--metrics-port",
            type=make_whole_parser(1, MAX_PORT),
            help="serve Prometheus metrics on this port; if ANNALS_METRICS_TOKEN is set, only to "
            "clients that send it as Bearer token (default: none)",
        )
        add(
            "--metrics-address",
            default="127.0.0.1",
            help="the address for --metrics-port; an address that other machines reach, such as "
            "0.0.0.0, needs ANNALS_METRICS_TOKEN (default: %(default)s)",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Consume until the process is stopped, or has got no message for `until_idle` seconds."""
        from history.store.database import privileges
        from ingest.management.preconditions import refuse_incompatible_tables
        from ingest.store import rights
        from ingest.store.session import open_connection

        memory.limit_heaps()
        faulthandler.register(signal.SIGUSR1)  # prints the stacks, also while Python's lock is held
        if options["metrics_port"] is not None:
            _serve_metrics(options["metrics_address"], options["metrics_port"])
        refuse_incompatible_tables()
        group = settings.ANNALS.consumer_group if options["group"] is None else options["group"]
        consumer = build_consumer(options["topics"], group, options["until_idle"])
        if not settings.ANNALS.demo:
            privileges.warn_in_background(
                partial(open_connection, "annals-check"), rights.list_consumer_rights()
            )
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        gc.freeze()  # the objects that exist now stay, so garbage collection need not examine them
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: consumer.stop())
        began = time.monotonic()
        totals = consumer.run()
        seconds = round(time.monotonic() - began, 3)
        summary = {**asdict(totals), "seconds": seconds, "peak_mb": _measure_peak_mb()}
        if totals.halted:
            logger.warning(
                "these topic partitions are halted and were not read to the end: %s. See `annals "
                "quarantine list`",
                ", ".join(totals.halted),
            )
        if options["json"]:
            self.stdout.write(json.dumps(summary))
        else:
            self.stderr.write(
                "stopped: {read} read, {stored} stored, {repeated} repeated, {expired} expired, "
                "{quarantined} quarantined in {batches} batches, {seconds} s".format(**summary)
            )
        if totals.halted and not consumer.stopped:
            sys.exit(EXIT_HALTED)


def _parse_group(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("the name of a group must not be empty")
    return text.strip()


def _parse_topics(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in BY_TOPIC]
    if unknown or not names:
        topics = "topic" if len(unknown) == 1 else "topics"
        problem = f"no kind declares the {topics} {', '.join(unknown)}" if names else "name a topic"
        raise ArgumentTypeError(f"{problem}; the declared topics are {', '.join(BY_TOPIC)}")
    return names


def _serve_metrics(address: str, port: int) -> None:
    from ingest.consumer import metrics_server

    token = settings.ANNALS.metrics_token
    if token is None and address not in LOOPBACK and not settings.ANNALS.demo:
        raise CommandError(
            f"--metrics-address {address}: other machines can reach it, and ANNALS_METRICS_TOKEN "
            "is not set. Set it, and give Prometheus the same token, or listen on 127.0.0.1."
        )
    try:
        metrics_server.start_server(address, port, token)
    except OSError as error:
        raise CommandError(
            f"--metrics-port {port}: metrics cannot be served on {address}: {error.strerror}. "
            "Give another port or --metrics-address."
        ) from None


def build_consumer(topics: tuple[str, ...], group: str, until_idle: float | None) -> Consumer:
    """Return a consumer with the settings of this process."""
    from ingest.consumer.heartbeat_writer import HeartbeatWriter
    from ingest.consumer.loop import Consumer, ConsumerSettings
    from ingest.consumer.loss_forecaster import LossForecaster
    from ingest.consumer.periodic_work import Probe
    from ingest.consumer.positions import Tolerance
    from ingest.consumer.writers import RetryingWriter
    from ingest.kafka import source
    from ingest.kafka.brokers import Brokers
    from ingest.kafka.retention import BrokerForecaster
    from ingest.management.preconditions import load_broker_settings
    from ingest.store.batch import Limits
    from ingest.store.missing_days import get_local_window
    from ingest.store.session import DatabaseSession, open_connection
    from ingest.store.transaction import BatchWriter

    annals = settings.ANNALS
    tolerance = Tolerance(annals.max_bad_in_a_row, annals.max_bad_ratio, window=2_000)
    consumer_settings = ConsumerSettings(
        limits=Limits(annals.batch_rows, annals.batch_bytes),
        tolerance=tolerance,
        window=get_local_window,
        until_idle=until_idle,
    )
    bootstrap, client_settings = load_broker_settings()
    heartbeats = HeartbeatWriter(DatabaseSession(partial(open_connection, "annals-beat")))
    return Consumer(
        consumer_settings,
        partial(
            source.GroupMember,
            bootstrap,
            group,
            topics,
            client_settings,
            on_stuck=import_string(settings.STUCK_GROUP)(
                {"bootstrap.servers": bootstrap, **client_settings}, group
            ),
        ),
        [RetryingWriter(BatchWriter(open_connection), until_idle) for _ in range(annals.writers)],
        Probe(
            partial(open_connection, "annals-probe"),
            partial(source.peek_messages, bootstrap, client_settings),
            Brokers(bootstrap, client_settings).fetch_bounds,
            tolerance,
        ),
        heartbeats,
        LossForecaster(
            BrokerForecaster(bootstrap, client_settings).fetch_log_forecasts, heartbeats
        ),
    )


def _measure_peak_mb() -> int:
    """Return the peak of this process's resident memory in MB.

    ru_maxrss is only the fallback, because it includes the memory of the parent process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
