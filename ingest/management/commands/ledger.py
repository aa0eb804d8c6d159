"""`annals ledger`: prints the ledger and its faults, and acknowledges losses."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Container, Mapping
from contextlib import closing
from math import isfinite
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from history.common.consumer_silence import find_main_silence
from history.common.text_tables import build_table, pluralize, print_table
from history.kinds.entities import BY_TOPIC
from history.management.numbers import make_whole_parser
from ingest.messages.message import KafkaPartition

if TYPE_CHECKING:
    from ingest.completeness import losses
    from ingest.kafka.retention_forecast import LogForecast
    from ingest.models import Ledger


REASON_LENGTH = 200
COLUMNS = ("read", "stored", "repeated", "expired", "quarantined")


class Command(BaseCommand):
    help = (
        "Print the messages read, stored, repeated, expired and quarantined of each topic "
        "partition; exit 1 if the sums do not add up, or the brokers deleted unread messages."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument(
            "--offline",
            action="store_true",
            help="do not ask Kafka; show the lag and the forecast that the consumer recorded last",
        )

        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        acknowledge = commands.add_parser(
            "acknowledge",
            help="record that the losses of a topic up to now are known; then only later losses "
            "are reported",
        )
        acknowledge.add_argument("topic", metavar="TOPIC", help="the topic")
        acknowledge.add_argument(
            "--partition", type=make_whole_parser(0, 2**31 - 1), help="only this partition"
        )
        acknowledge.add_argument(
            "--why", required=True, help="the reason; it is kept with the losses"
        )
        retire = commands.add_parser(
            "retire", help="declare a topic finished: completeness no longer waits for it"
        )
        unretire = commands.add_parser("unretire", help="undo `retire`")
        for action in (retire, unretire):
            action.add_argument("topic", metavar="TOPIC", help="the topic")
        retire.add_argument("--why", required=True, help="the reason; it is shown")

    def handle(self, *_: Any, **options: Any) -> None:
        if options["command"] is None:
            self._print_figures(options)
        else:
            getattr(self, f"_{options['command']}")(options)

    def _acknowledge(self, options: dict[str, Any]) -> None:
        from ingest.completeness.ledger_rows import acknowledge_losses
        from ingest.management.argument_checks import refuse_unknown_topic

        topic, reason = options["topic"], _require_reason(options)
        refuse_unknown_topic(topic)
        count = acknowledge_losses(topic, options["partition"], reason)
        if not count:
            raise CommandError(
                f"{topic}: all lost messages are acknowledged already, or none is lost."
            )
        self.stdout.write(f"{pluralize(count, 'lost message')} of {topic} acknowledged: {reason}")

    def _retire(self, options: dict[str, Any]) -> None:
        from ingest.completeness.ledger_rows import retire_topic
        from ingest.management.argument_checks import refuse_unknown_topic

        topic, reason = options["topic"], _require_reason(options)
        refuse_unknown_topic(topic)
        unread = retire_topic(topic, reason)
        self.stdout.write(f"{topic} is retired: {reason}")
        if unread:
            self.stdout.write(
                f"{unread:,} messages of the topic were not read. Neither completeness nor the "
                "dropping of old days waits for them."
            )

    def _unretire(self, options: dict[str, Any]) -> None:
        from ingest.completeness.ledger_rows import unretire_topic
        from ingest.management.argument_checks import refuse_unknown_topic

        topic = options["topic"]
        if not unretire_topic(topic):
            refuse_unknown_topic(topic)
            raise CommandError(f"{topic} is not retired.")
        self.stdout.write(f"{topic} is not retired any more.")

    def _print_figures(self, options: dict[str, Any]) -> None:
        import msgspec

        from ingest.completeness import ledger_rows, losses

        entries = ledger_rows.load_entries()
        log_forecasts: dict[KafkaPartition, LogForecast] = {}
        if not options["offline"]:
            log_forecasts = self._ask_brokers(entries)
            losses.update_entries(entries, log_forecasts)
        known_partitions = {(entry.topic, entry.partition) for entry in entries}
        never_read = {
            name: log_forecast
            for name, log_forecast in log_forecasts.items()
            if name not in known_partitions
        }
        with translation.override("en"):
            faults = ledger_rows.find_faults(entries)
        deleted = losses.describe_deleted(log_forecasts, ledger_rows.load_retired_topics())
        forecasts = losses.forecast_losses(entries, never_read)
        if options["json"]:
            figures = ledger_rows.make_figures(
                entries, faults + deleted, losses.list_losses(forecasts)
            )
            self.stdout.write(json.dumps(msgspec.to_builtins(figures)))
        else:
            self._print_table(entries, faults)
            for sentence in deleted:
                self.stdout.write(f"LOST {sentence}")
            self._print_losses(forecasts, log_forecasts, never_read)
        if faults or deleted:
            sys.exit(1)

    def _ask_brokers(self, entries: list[Ledger]) -> dict[KafkaPartition, LogForecast]:
        """Fetch the offsets of topic partitions from the brokers, and forecast losses of messages.

        A topic partition of a retired topic is left out unless `entries` has a row for it. If the
        brokers do not answer, print a warning and return an empty dict.
        """
        from ingest.completeness import ledger_rows, losses
        from ingest.kafka.client import UnreachableError
        from ingest.kafka.retention import BrokerForecaster
        from ingest.management.preconditions import load_broker_settings

        positions: dict[KafkaPartition, int | None] = {
            (entry.topic, entry.partition): entry.next_offset for entry in entries if entry.current
        }
        retired = ledger_rows.load_retired_topics()
        try:
            with closing(BrokerForecaster(*load_broker_settings())) as forecaster:
                partitions = forecaster.list_partitions(
                    topic for topic in BY_TOPIC if topic not in retired
                )
                next_offsets = {**dict.fromkeys(partitions), **positions}
                return forecaster.fetch_log_forecasts(
                    next_offsets, losses.collect_seen_ends(entries)
                )
        except (UnreachableError, CommandError) as error:
            self.stderr.write(f"{error}. The lag is the one that a consumer recorded last.")
            return {}

    def _print_losses(
        self,
        forecasts: Mapping[KafkaPartition, losses.LossForecast],
        log_forecasts: Mapping[KafkaPartition, LogForecast],
        never_read: Container[KafkaPartition],
    ) -> None:
        """Print a line for each topic partition with unread messages, the most endangered first."""
        from ingest.completeness import losses

        topics_without_forecast = {
            topic
            for (topic, _), log_forecast in log_forecasts.items()
            if log_forecast.forecast is None
        }
        for topic in sorted(topics_without_forecast):
            self.stdout.write(
                f"NO FORECAST {topic}: the brokers do not say how long they keep it; allow "
                "DESCRIBE_CONFIGS on the topic (the embedded broker never says it)",
            )
        behind = {name: loss for name, loss in forecasts.items() if loss.unread}
        for (topic, partition), loss in behind.items():
            loss_text = "will never be lost: the topic has no retention"
            if loss.is_losing:
                loss_text = "is being lost: it is past its retention"
            elif isfinite(loss.loss_seconds):
                loss_text = f"will be lost in {losses.format_duration(loss.loss_seconds)}"
            catch_up = "catching up never ends: messages come as fast as they are read"
            if loss.is_halted:
                catch_up = "catching up never ends: it is halted"
            elif isfinite(loss.catch_up_seconds):
                catch_up = f"catching up takes {losses.format_duration(loss.catch_up_seconds)}"
            remark = " (never read)" if (topic, partition) in never_read else ""
            self.stdout.write(
                f"UNREAD {topic}[{partition}]{remark}: {pluralize(loss.unread, 'message')}; "
                f"data {loss_text}; {catch_up}",
            )
        if forecasts and not behind:
            first = min(loss.loss_seconds for loss in forecasts.values())
            if isfinite(first):
                self.stdout.write(
                    "All messages are read. If reading stops now, new messages will be lost in "
                    f"{losses.format_duration(first)} at the earliest.",
                )

    def _print_topics(self, entries: list[Ledger]) -> None:
        """Print a line for each topic that was never read, is absent, or is not declared now."""
        from ingest.completeness import ledger_rows

        for topic in ledger_rows.find_never_read_topics(entries):
            self.stdout.write(
                f"NOT YET READ {topic}: no consumer has ever read it, so it is not known how many "
                "messages it has. Read it with `annals consume`, or declare it finished with "
                "`annals ledger retire`.",
            )
        for topic, asked_at in ledger_rows.find_absent_topics(entries).items():
            expected = "a migration topic may be absent"
            if topic == BY_TOPIC[topic].topics[0]:
                expected = "services send their changes to it, so create it"
            self.stdout.write(
                f"ABSENT {topic}: it did not exist at {asked_at:%Y-%m-%d %H:%M:%S} UTC; {expected}."
                " Completeness does not wait for it. Consumers read it as soon as it exists.",
            )
        for topic in ledger_rows.find_undeclared_topics(entries):
            self.stdout.write(
                f"NOT READ {topic}: no kind declares this topic any more, so consumers do not read "
                "its new messages. Declare its kind again, or declare the topic finished with "
                "`annals ledger retire`.",
            )

    def _print_table(self, entries: list[Ledger], faults: list[str]) -> None:
        from ingest.completeness import ledger_rows

        if not entries:
            self.stdout.write("The ledger is empty: nothing has been consumed yet.")
            return
        names = "topic", "partition", *COLUMNS, "skipped", "lost", "next offset", "lag", "state"
        table = build_table(*names, right=names[1:-1])
        for entry in entries:
            counts = (f"{getattr(entry, name):,}" for name in (*COLUMNS, "skipped"))
            lost = f"{entry.lost:,}"
            if entry.lost_acknowledged:
                lost += f" ({entry.lost_acknowledged:,} acknowledged)"
            lag = "?" if entry.lag is None else f"{entry.lag:,}"
            cells = (*counts, lost, f"{entry.next_offset:,}", lag, entry.state)
            table.add_row(entry.topic, str(entry.partition), *cells)
        total = (f"{sum(getattr(entry, name) for entry in entries):,}" for name in COLUMNS)
        table.add_row("all", "", *total, *[""] * 5)
        print_table(self.stdout, table)
        for topic, retirement in ledger_rows.load_retired_topics().items():
            self.stdout.write(
                f"RETIRED {topic} since {retirement.retired_at:%Y-%m-%d}: {retirement.why}"
            )
        self._print_topics(entries)
        for entry in entries:
            if entry.log_cut:
                self.stdout.write(
                    f"CUT {entry.topic}[{entry.partition}]: the log at the broker was truncated "
                    f"after it was read to offset {entry.next_offset}; it was read again from its "
                    "start. Messages that were read before are stored; messages that were never "
                    "read may be missing.",
                )
        for fault in faults:
            self.stdout.write(f"FAULT {fault}")
        if silence := find_main_silence(entry.silence for entry in entries):
            self.stdout.write(f"SILENT {silence}: messages that arrived since then are not read.")
        if not faults:
            self.stdout.write("Every message read is accounted for.")


def _require_reason(options: dict[str, Any]) -> str:
    reason: str = options["why"].strip()
    if not 0 < len(reason) <= REASON_LENGTH:
        raise CommandError(f"--why must have 1 to {REASON_LENGTH} characters.")
    return reason
