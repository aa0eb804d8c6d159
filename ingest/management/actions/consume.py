"""The action of `annals consume`."""

import faulthandler
import gc
import json
import logging
import resource
import signal
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from history.common import memory, schema
from history.common.database_errors import explain_no_connection, is_refused
from history.common.error_text import describe
from history.store.database import forms, privileges, session
from ingest.consumer import metrics_server
from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.consumer.loop import Consumer, Policy
from ingest.consumer.loss_forecaster import LossForecaster
from ingest.consumer.periodic_work import Probe
from ingest.consumer.positions import Tolerance
from ingest.consumer.writers import RetryingWriter
from ingest.kafka import source
from ingest.kafka.brokers import Brokers
from ingest.kafka.retention import BrokerForecaster
from ingest.store import rights
from ingest.store.batch import Limits
from ingest.store.missing_days import get_local_window
from ingest.store.session import DatabaseSession, open_connection
from ingest.store.transaction import BatchWriter

logger = logging.getLogger(__name__)

# Python's default of 5 ms would have the writing thread, and the database, wait for the decoder.
SWITCH_INTERVAL_SECONDS = 0.0002
# Only processes of this machine reach them.
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# The exit code where --until-idle ends and partitions were not read to their end.
EXIT_HALTED: Final = 3


def run(command: BaseCommand, **options: Any) -> None:
    """Consume until the process is stopped, or until idle if the options say so."""
    memory.limit_heaps()
    faulthandler.register(signal.SIGUSR1)  # prints the stacks, also while Python's lock is held
    if options["metrics_port"] is not None:
        _serve_metrics(options["metrics_address"], options["metrics_port"])
    refuse_other_tables()
    group = settings.ANNALS.consumer_group if options["group"] is None else options["group"]
    consumer = build_consumer(options["topics"], group, options["until_idle"])
    if not settings.ANNALS.demo:
        privileges.warn_in_background(
            partial(open_connection, "annals-check"), rights.list_consumer_rights()
        )
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    gc.freeze()  # what exists now stays: no collection needs to examine it
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: consumer.stop())
    began = time.monotonic()
    totals = consumer.run()
    seconds = round(time.monotonic() - began, 3)
    summary = {**asdict(totals), "seconds": seconds, "peak_mb": _measure_peak_mb()}
    if totals.halted:
        logger.warning(
            "halted, not read to the end: %s; see `annals quarantine list`",
            ", ".join(totals.halted),
        )
    if options["json"]:
        command.stdout.write(json.dumps(summary))
    else:
        command.stderr.write(
            "stopped: {read} read, {stored} stored, {repeated} repeated, {expired} expired, "
            "{quarantined} quarantined in {batches} batches, {seconds} s".format(**summary)
        )
    if totals.halted and not consumer.stopped:
        sys.exit(EXIT_HALTED)


def _serve_metrics(address: str, port: int) -> None:
    token = settings.ANNALS.metrics_token
    if token is None and address not in LOOPBACK and not settings.ANNALS.demo:
        raise CommandError(
            f"--metrics-address {address}: others can reach it, and ANNALS_METRICS_TOKEN is not "
            "set. Set it, and give Prometheus the same token, or listen on 127.0.0.1."
        )
    try:
        metrics_server.start(address, port, token)
    except OSError as error:
        raise CommandError(
            f"--metrics-port {port}: metrics cannot be served on {address}: {error.strerror}. "
            "Give another port or --metrics-address."
        ) from None


def refuse_other_tables() -> None:
    """Refuse to start if the tables are of another release or the login is refused.

    A database that does not answer is waited for later, as in any outage.

    Raises:
        CommandError: Why the consumer cannot start.
    """
    try:
        with open_connection("annals-check") as connection:
            complaint = session.explain_dropped_settings(connection) or schema.explain_tables(
                connection.cursor()
            )
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            "The database login of this consumer may not read which migrations are applied: its "
            "rights are those of an earlier release. Run `annals migrate` and `annals grants "
            "--apply` as the owner of the tables, then start this process again."
        ) from None
    except forms.NewerFormError as error:
        raise CommandError(f"{error}.") from None
    except psycopg.Error as error:
        if is_refused(error):
            raise
        reason = explain_no_connection(error) or describe(error)
        logger.warning("%s. The consumer waits and goes on trying", reason)
        return
    if complaint is not None:
        raise CommandError(complaint)


def build_consumer(topics: tuple[str, ...], group: str, until_idle: float | None) -> Consumer:
    """Return a consumer with the settings of this process."""
    annals = settings.ANNALS
    tolerance = Tolerance(annals.max_bad_in_a_row, annals.max_bad_ratio, window=2_000)
    policy = Policy(
        limits=Limits(annals.batch_rows, annals.batch_bytes),
        tolerance=tolerance,
        window=get_local_window,
        until_idle=until_idle,
    )
    bootstrap, client_settings = load_broker_settings()
    beats = HeartbeatWriter(DatabaseSession(partial(open_connection, "annals-beat")))
    return Consumer(
        policy,
        partial(source.GroupMember, bootstrap, group, topics, client_settings),
        [RetryingWriter(BatchWriter(open_connection), until_idle) for _ in range(annals.writers)],
        Probe(
            partial(open_connection, "annals-probe"),
            partial(source.peek_messages, bootstrap, client_settings),
            Brokers(bootstrap, client_settings).fetch_bounds,
            tolerance,
        ),
        beats,
        LossForecaster(BrokerForecaster(bootstrap, client_settings).fetch_outlooks, beats),
    )


def load_broker_settings() -> tuple[str, dict[str, str]]:
    """Return the bootstrap servers, and the librdkafka settings from the environment."""
    client_settings = dict(settings.KAFKA)
    bootstrap = client_settings.pop("bootstrap.servers", None)
    if not bootstrap:
        raise CommandError(
            "No broker is named, and the embedded one does not run. Set KAFKA_BOOTSTRAP_SERVERS, "
            "as host:port,host:port, or start it: annals embedded start"
        )
    return str(bootstrap), client_settings


def _measure_peak_mb() -> int:
    """Return the peak of resident memory in MB; ru_maxrss would include that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
