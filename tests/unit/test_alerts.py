"""promtool checks that each alert of docker/prometheus/rules.yaml fires and clears."""

import json
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import required_programs

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docker/prometheus/rules.yaml"
PLACE = 'topic="t",partition="0"'
OTHER = 'topic="t",partition="1"'
CONSUMERS = 'up{job="annals-consume",instance="c"}'
OTHER_CONSUMER = 'up{job="annals-consume",instance="c2"}'
WEB = 'up{job="annals-web",instance="w"}'
DISK = 'job="postgres-disk",instance="p",mountpoint="/data"'
RUNBOOK = "https://git.bank.example/annals/docs/runbook.md"


@dataclass(frozen=True)
class Case:
    """Samples with which an alert is quiet at first, then fires, and then is quiet again.

    Attributes:
        series: Samples in promtool's notation `start+stepxcount`, one for each `interval`.
        quiet: The minute at which the alert does not fire yet.
        fires: The minute at which it fires.
        clears: The minute at which it does not fire any more.
        summary: The text of the alert.
        labels: The labels of the alert except its severity.
    """

    alert: str
    series: dict[str, str]
    quiet: tuple[int, ...]
    fires: tuple[int, ...]
    clears: int
    summary: str
    labels: dict[str, str] = field(default_factory=dict)
    interval: str = "1m"


def web(name: str, labels: str, values: str) -> dict[str, str]:
    """Return the same series from two web processes, which an alert must not count twice."""
    fields = f"{labels}," if labels else ""
    return {f'{name}{{{fields}instance="{item}"}}': values for item in ("w1", "w2")}


CASES = [
    Case(
        "AnnalsDown",
        {CONSUMERS: "1+0x30", WEB: "1+0x5 0+0x5 1+0x20"},
        quiet=(5, 7),
        fires=(9,),
        clears=14,
        labels={"job": "annals-web", "instance": "w"},
        summary="annals-web w does not answer",
    ),
    Case(
        "AnnalsDown",
        {WEB: "1+0x30", CONSUMERS: "1+0x5 _x10 1+0x10"},
        quiet=(5,),
        fires=(14,),
        clears=18,
        labels={"job": "annals-consume"},
        summary="annals-consume  does not answer",
    ),
    # no consumer reads, and the time gets short; then a consumer has caught up
    Case(
        "AnnalsLossNear",
        {
            **web("annals_loss_seconds", PLACE, "28800-1440x25 28800+0x10"),
            **web("annals_kept_seconds", PLACE, "28800+0x40"),
            **web("annals_catch_up_seconds", PLACE, "2400+0x25 0+0x10"),
            # messages are kept for an hour only, and more than half of it is left
            **web("annals_loss_seconds", OTHER, "2000+0x40"),
            **web("annals_kept_seconds", OTHER, "3600+0x40"),
        },
        quiet=(10, 15, 16),
        fires=(17,),
        clears=26,
        labels={"topic": "t", "partition": "0"},
        summary="t [0]: data will be lost in 1h 12m 0s; catching up takes 40m 0s",
    ),
    Case(
        "AnnalsCatchUpTooSlow",
        {
            **web("annals_loss_seconds", PLACE, "28800+0x40"),
            **web("annals_catch_up_seconds", PLACE, "0+0x5 36000+0x10 60+0x20"),
            **web("annals_loss_seconds", OTHER, "+Inf+0x40"),
            **web("annals_catch_up_seconds", OTHER, "36000+0x40"),
        },
        quiet=(5, 10),
        fires=(12,),
        clears=17,
        labels={"topic": "t", "partition": "0"},
        summary="t [0]: catching up takes 10h 0m 0s, but data will be lost in 8h 0m 0s",
    ),
    Case(
        "AnnalsDatabaseDown",
        {
            'annals_store_up{instance="w1"}': "1+0x30",
            'annals_store_up{instance="w2"}': "1+0x5 0+0x5 1+0x10",
        },
        quiet=(5, 6),
        fires=(8,),
        clears=13,
        summary="PostgreSQL does not answer; the consumer waits and loses nothing",
    ),
    Case(
        "AnnalsWritesFail",
        {
            'annals_database_up{instance="c1"}': "1+0x5 0+0x5 1+0x10",
            'annals_database_up{instance="c2"}': "1+0x30",
        },
        quiet=(5, 7),
        fires=(9,),
        clears=13,
        labels={"instance": "c1"},
        summary="The consumer c1 cannot write: the database refuses or is away",
    ),
    # a password that was changed under a running consumer
    Case(
        "AnnalsLoginRefused",
        {
            'annals_login_refused{instance="c1", server="kafka"}': "0+0x5 1+0x5 0+0x10",
            'annals_login_refused{instance="c1", server="postgresql"}': "0+0x30",
        },
        quiet=(5, 6),
        fires=(8,),
        clears=13,
        labels={"instance": "c1", "server": "kafka"},
        summary="The login of the consumer c1 is refused: kafka",
    ),
    # one of two consumers: the batches of the other must not hide this
    Case(
        "AnnalsWriteHangs",
        {
            'annals_batch_in_flight_seconds{instance="c1"}': "0+0x5 0+60x10 0+0x10",
            'annals_batch_in_flight_seconds{instance="c2"}': "0+0x5 1+0x30",
        },
        quiet=(5, 8),
        fires=(9,),
        clears=17,
        labels={"instance": "c1"},
        summary="The consumer c1 has been writing one batch for 3m 0s",
    ),
    Case(
        "AnnalsConsumerHangs",
        {
            'annals_consumer_turn_timestamp_seconds{instance="c1"}': "0+60x10 600+0x10 1260+60x9",
            'annals_consumer_turn_timestamp_seconds{instance="c2"}': "0+60x40",
        },
        quiet=(10, 12),
        fires=(13,),
        clears=22,
        labels={"instance": "c1"},
        summary="The loop of the consumer c1 has not turned for 3m 0s",
    ),
    # a frozen consumer does not answer, and another consumer goes on
    Case(
        "AnnalsDown",
        {WEB: "1+0x30", CONSUMERS: "1+0x30", OTHER_CONSUMER: "1+0x5 0+0x5 1+0x20"},
        quiet=(5, 7),
        fires=(9,),
        clears=14,
        labels={"job": "annals-consume", "instance": "c2"},
        summary="annals-consume c2 does not answer",
    ),
    Case(
        "AnnalsWritesRetried",
        {'annals_write_retries_total{instance="c1"}': "0+0x10 0+2x20 40+0x40"},
        quiet=(10, 16),
        fires=(30,),
        clears=60,
        labels={"instance": "c1"},
        summary="The consumer c1 repeated 30 writes in 15 minutes",
    ),
    # for two hours 20 times the usual; "rare" too, but these are few
    Case(
        "AnnalsServiceFloods",
        {
            'annals_client_messages_total{client="crm",instance="c1"}': (
                "0+150x288 46200+3000x23 115350+150x200"
            ),
            'annals_client_messages_total{client="crm",instance="c2"}': (
                "0+150x288 46200+3000x23 115350+150x200"
            ),
            'annals_client_messages_total{client="rare",instance="c1"}': "0+1x288 320+30x224",
            'annals_client_messages_total{client="robot",instance="c1"}': "0+9000x512",
        },
        quiet=(60, 1435),
        fires=(1500, 1550),
        clears=1620,
        interval="5m",
        labels={"client": "crm"},
        summary="crm brings 20 messages a second, more than ten times its usual",
    ),
    Case(
        "AnnalsLogCut",
        {'annals_logs_cut_total{instance="c1"}': "0+0x10 1+0x2000"},
        quiet=(10,),
        fires=(12, 1000),
        clears=1500,
        labels={"instance": "c1"},
        summary="Logs of which the brokers lost the end: 1; annals ledger names them",
    ),
    Case(
        "AnnalsDaysRunOut",
        {
            **web("annals_store_days_ahead", 'table="a"', "14+0x200"),
            **web("annals_store_days_ahead", 'table="b"', "3+0x10 2+0x100 14+0x30"),
        },
        quiet=(10, 60),
        fires=(80,),
        clears=115,
        summary="Days ahead that have partitions: only 2; does maintain run?",
    ),
    Case(
        "AnnalsMaintainFails",
        {
            **web("annals_maintain_exit_code", "", "1+0x5 2+0x20 0+0x10"),
            **web("annals_maintain_timestamp_seconds", "", "0+60x40"),
            **web("annals_store_up", "", "1+0x40"),
        },
        quiet=(5, 9),
        fires=(12, 25),
        clears=28,
        summary="partitions maintain failed, or has not run for 26 hours",
    ),
    Case(
        "AnnalsMaintainFails",
        {
            **web("annals_maintain_exit_code", "", "0+0x400"),
            **web("annals_maintain_timestamp_seconds", "", "0+0x330 100000+0x60"),
            **web("annals_store_up", "", "1+0x400"),
        },
        quiet=(60, 25 * 60),
        fires=(27 * 60,),
        clears=30 * 60,
        interval="5m",
        summary="partitions maintain failed, or has not run for 26 hours",
    ),
    Case(
        "AnnalsMaintainFails",
        {
            **web("annals_store_up", "", "0+0x10 1+0x40"),
            **web("annals_maintain_timestamp_seconds", "", "_x20 1200+0x10"),
        },
        quiet=(10,),
        fires=(18,),
        clears=22,
        summary="partitions maintain failed, or has not run for 26 hours",
    ),
    Case(
        "AnnalsDaysHeld",
        web("annals_maintain_held", "", "0+0x10 4+0x70 0+0x10"),
        quiet=(10, 60),
        fires=(75,),
        clears=84,
        summary="Partitions that are held for unsettled messages: 4",
    ),
    Case(
        "AnnalsVersionsMissing",
        {
            **web("annals_gaps_versions", 'entity="a",client="x"', "5+0x300 200+0x700"),
            **web("annals_gaps_versions", 'entity="b",client="y"', "7000+0x1000"),
        },
        quiet=(60, 24 * 60 + 10),
        fires=(27 * 60, 40 * 60),
        clears=51 * 60,
        interval="5m",
        summary="195 more versions than a day ago never arrived",
    ),
    Case(
        "AnnalsGapsUnknown",
        {
            **web("annals_gaps_timestamp_seconds", "", "0+0x72 21600+0x24 28800+0x24"),
            **web("annals_store_up", "", "1+0x120"),
        },
        quiet=(60, 4 * 60 + 30),
        fires=(5 * 60 + 30,),
        clears=6 * 60 + 30,
        interval="5m",
        summary="annals gaps has not completed for 4 hours",
    ),
    Case(
        "AnnalsGapsUnknown",
        {
            **web("annals_store_up", "", "0+0x60 1+0x120"),
            **web("annals_gaps_timestamp_seconds", "", "_x150 9000+0x30"),
        },
        quiet=(50, 110),
        fires=(130,),
        clears=160,
        summary="annals gaps has not completed for 4 hours",
    ),
    Case(
        "AnnalsArchiveDamaged",
        web("annals_archive_days_faulty", "", "0+0x10 2+0x20 0+0x10"),
        quiet=(10,),
        fires=(12, 30),
        clears=32,
        summary="Archived days that are missing, unreadable or changed: 2",
    ),
    # one table of two
    Case(
        "AnnalsSealsDiffer",
        {
            **web("annals_verify_faults", 'table="a"', "0+0x10 2+0x20 0+0x10"),
            **web("annals_verify_faults", 'table="b"', "0+0x40"),
        },
        quiet=(10,),
        fires=(12, 30),
        clears=32,
        labels={"table": "a"},
        summary="a: faults in sealed days, as of the latest verify: 2",
    ),
    Case(
        "AnnalsVerifyMissing",
        {
            **web("annals_verify_timestamp_seconds", 'table="a"', "0+0x2400 720000+0x60"),
            **web("annals_verify_timestamp_seconds", 'table="b"', "0+300x2460"),
        },
        quiet=(60, 8 * 1440 + 30),
        fires=(8 * 1440 + 70,),
        clears=2401 * 5,
        interval="5m",
        labels={"table": "a"},
        summary="a: partitions verify has not completed for 8d 1h 10m 0s",
    ),
    Case(
        "AnnalsDaysNotDropped",
        {
            **web("annals_store_days_overdue", 'table="a"', "1+0x120 3+0x360 1+0x100"),
            **web("annals_store_days_overdue", 'table="b"', "1+0x600"),
            **web("annals_maintain_held", "", "2+0x600"),
        },
        quiet=(10 * 60, 30 * 60),
        fires=(39 * 60,),
        clears=43 * 60,
        interval="5m",
        summary="Partitions that are older than retention and not held: 2",
    ),
    Case(
        "AnnalsHalted",
        {
            **web("annals_store_halted", PLACE, "0+0x5 1+0x5 0+0x5"),
            **web("annals_store_halted", OTHER, "0+0x20"),
        },
        quiet=(5,),
        fires=(7,),
        clears=12,
        labels={"topic": "t", "partition": "0"},
        summary="t [0] is halted: too many bad messages",
    ),
    Case(
        "AnnalsDoesNotAddUp",
        web("annals_store_faults", "", "0+0x5 3+0x5 0+0x5"),
        quiet=(5, 6),
        fires=(8,),
        clears=12,
        summary="Faults in the ledger: 3; annals ledger lists them",
    ),
    # one of two consumers hangs: the other still reports on its own partition
    Case(
        "AnnalsConsumerSilent",
        {
            **web("annals_store_seen_timestamp_seconds", PLACE, "0+60x10 600+0x10 1260+60x20"),
            **web("annals_store_seen_timestamp_seconds", OTHER, "0+60x60"),
        },
        quiet=(10, 14),
        fires=(17, 20),
        clears=22,
        labels={"topic": "t"},
        summary="t: partitions on which no consumer has reported for 5 minutes: 1",
    ),
    Case(
        "AnnalsBrokersSilent",
        {
            **web("annals_store_end_known_timestamp_seconds", PLACE, "0+60x10 600+0x10 1260+60x9"),
            **web("annals_store_end_known_timestamp_seconds", OTHER, "0+60x60"),
        },
        quiet=(10, 15),
        fires=(18, 20),
        clears=22,
        labels={"topic": "t"},
        summary="t: partitions about which the brokers have not answered for 5 minutes: 1",
    ),
    Case(
        "AnnalsNothingRead",
        {
            **web("annals_store_read_timestamp_seconds", PLACE, "0+60x10 600+0x40 3120+60x30"),
            **web("annals_store_read_timestamp_seconds", OTHER, "0+60x90"),
            **web("annals_store_lag", PLACE, "5+0x90"),
            **web("annals_store_lag", OTHER, "5+0x90"),
            **web("annals_store_halted", PLACE, "0+0x90"),
        },
        quiet=(10, 35),
        fires=(45,),
        clears=60,
        labels={"topic": "t"},
        summary="t: partitions with unread messages of which none is read: 1",
    ),
    Case(
        "AnnalsTopicNeverRead",
        web("annals_store_topics_never_read", "", "0+0x10 2+0x70 0+0x10"),
        quiet=(10, 60),
        fires=(75,),
        clears=84,
        summary="Topics that were never read: 2; annals ledger names them",
    ),
    Case(
        "AnnalsLagGrows",
        {
            **web("annals_store_lag", PLACE, "3000+0x10 3000+500x40 0+0x30"),
            **web("annals_store_lag", OTHER, "3000+0x10 3000+500x40 0+0x30"),
        },
        quiet=(10, 20),
        fires=(40,),
        clears=55,
        summary="35000 messages are unread, and the number grows",
    ),
    # a message whose retry is scheduled is not settled
    Case(
        "AnnalsQuarantine",
        {
            **web("annals_store_quarantine", 'status="new",reason="not_json"', "2+0x10 0+0x20"),
            **web(
                "annals_store_quarantine",
                'status="retrying",reason="not_json"',
                "0+0x10 2+0x10 stale",
            ),
        },
        quiet=(4,),
        fires=(6, 10, 15, 20),
        clears=23,
        labels={"reason": "not_json"},
        summary="Messages in quarantine for not_json: 2",
    ),
    Case(
        "AnnalsBreakGlass",
        {'annals_break_glass_logins_total{instance="w1"}': "0+0x20 1+0x60"},
        quiet=(10, 20),
        fires=(21, 30),
        clears=40,
        labels={"instance": "w1"},
        summary="Somebody logged in with a break-glass link at w1",
    ),
    Case(
        "AnnalsBreakGlass",
        {'annals_break_glass_logins_total{instance="w1"}': "_x10 1+0x60"},
        quiet=(5, 9),
        fires=(11, 20),
        clears=30,
        labels={"instance": "w1"},
        summary="Somebody logged in with a break-glass link at w1",
    ),
    *(
        Case(
            "AnnalsJournalFails",
            {f'annals_journal_failures_total{{instance="w1",became="{became}"}}': values},
            quiet=(5, 9),
            fires=(11, 14),
            clears=25,
            labels={"instance": "w1", "became": became},
            summary=f"w1 cannot write the access journal: requests are {became}",
        )
        for became, values in (("refused", "0+0x10 3+0x40"), ("answered", "_x10 1+0x40"))
    ),
    Case(
        "AnnalsManyOpened",
        {
            'annals_journal_most_opened{instance="w1",actor="person"}': "150x10 250x10 20x40",
            'annals_journal_most_opened{instance="w1",actor="program"}': "5000x60",
        },
        quiet=(5, 9),
        fires=(12, 20),
        clears=30,
        summary="A person has opened 250 different applications in an hour",
    ),
    *(
        Case(
            "AnnalsNeedToKnowFails",
            {
                'annals_need_to_know_refusals_total{instance="w1",why="error"}': values,
                'annals_need_to_know_refusals_total{instance="w1",why="rule"}': "0+5x70",
            },
            quiet=(5, 9),
            fires=(11, 20),
            clears=30,
            labels={"instance": "w1", "why": "error"},
            summary="The rule of ANNALS_NEED_TO_KNOW fails at w1: what it does not answer about "
            "stays closed",
        )
        for values in ("0+0x10 3+0x60", "_x10 1+0x60")
    ),
    Case(
        "AnnalsErrors",
        {
            'annals_http_requests_total{status="200"}': "0+90x60",
            'annals_http_requests_total{status="500"}': "0+0x10 0+10x20 200+0x30",
        },
        quiet=(10, 15),
        fires=(25,),
        clears=38,
        summary="10% of the answers are errors",
    ),
    # not all of them are bad, and one topic of two
    Case(
        "AnnalsQuarantineGrows",
        {
            'annals_quarantined_total{topic="t",reason="not_json"}': "0+0x10 0+20x20 400+0x40",
            'annals_quarantined_total{topic="u",reason="not_json"}': "0+1x70",
            'annals_messages_total{topic="t",became="stored"}': "0+180x70",
            'annals_messages_total{topic="t",became="quarantined"}': "0+0x10 0+20x20 400+0x40",
            'annals_messages_total{topic="u",became="stored"}': "0+1x70",
        },
        quiet=(10,),
        fires=(30,),
        clears=60,
        labels={"topic": "t"},
        summary="t: 10% of the messages of 15 minutes are in quarantine",
    ),
    Case(
        "AnnalsWalNotArchived",
        web("annals_store_wal_archive_failing", "", "0+0x10 1+0x30 0+0x10"),
        quiet=(10, 24),
        fires=(27, 40),
        clears=42,
        summary="PostgreSQL cannot archive its WAL: backups end earlier, and pg_wal grows",
    ),
    Case(
        "AnnalsPreparedLeft",
        web("annals_store_prepared_transactions_left", "", "0+0x10 2+0x30 0+0x10"),
        quiet=(10, 14),
        fires=(17, 40),
        clears=42,
        summary="Prepared transactions that Citus does not complete, and what they lock stays "
        "locked: 2",
    ),
    Case(
        "AnnalsRestarts",
        {
            'process_start_time_seconds{job="annals-consume",instance="c"}': (
                "0+0x10 60 120 180 240 240+0x60"
            ),
            'process_start_time_seconds{job="annals-consume",instance="d"}': "0+0x80",
        },
        quiet=(10, 13),
        fires=(15, 30),
        clears=50,
        labels={"job": "annals-consume", "instance": "c"},
        summary="annals-consume c has started 4 times in 30 minutes",
    ),
    Case(
        "AnnalsReadingPaused",
        {
            'annals_paused{instance="c1"}': "0+0x10 1+0x20 0+0x20",
            'annals_paused{instance="c2"}': "0+0x5 1 0 1 0 1 0+0x50",
        },
        quiet=(10, 20),
        fires=(27, 30),
        clears=32,
        labels={"instance": "c1"},
        summary="The consumer c1 has read nothing for 15 minutes: it waits for the database",
    ),
    Case(
        "AnnalsDaysMissing",
        {
            **web("annals_store_days_missing", 'table="a"', "1+0x60 0+0x12 2+0x360 0+0x50"),
            **web("annals_store_days_missing", 'table="b"', "0+0x600"),
        },
        quiet=(5 * 60, 20 * 60),
        fires=(33 * 60,),
        clears=37 * 60,
        interval="5m",
        labels={"table": "a"},
        summary="a: days inside the window that have no partition: 2",
    ),
    Case(
        "AnnalsDaysNotPacked",
        web("annals_store_days_to_pack", 'table="a"', "0+0x10 2+0x100 0+0x10"),
        quiet=(10 * 60, 80 * 60),
        fires=(90 * 60,),
        clears=113 * 60,
        interval="1h",
        summary="Finished days that are not packed, and take ten times the disk: 2",
    ),
    # the disk is full now, and later it is not
    Case(
        "AnnalsDiskFills",
        {
            f"node_filesystem_avail_bytes{{{DISK}}}": "50+0x10 10+0x60 50+0x500",
            f"node_filesystem_size_bytes{{{DISK}}}": "100+0x600",
        },
        quiet=(10, 30),
        fires=(45, 70),
        clears=550,
        labels={"job": "postgres-disk", "instance": "p", "mountpoint": "/data"},
        summary="The disk of PostgreSQL at p (/data) is nearly full, or will be within 3 days",
    ),
    # half of the disk is free, but will soon be full
    Case(
        "AnnalsDiskFills",
        {
            f"node_filesystem_avail_bytes{{{DISK}}}": "90000+0x72 90000-150x100 75000+0x300",
            f"node_filesystem_size_bytes{{{DISK}}}": "100000+0x500",
        },
        quiet=(6 * 60,),
        fires=(14 * 60,),
        clears=24 * 60,
        interval="5m",
        labels={"job": "postgres-disk", "instance": "p", "mountpoint": "/data"},
        summary="The disk of PostgreSQL at p (/data) is nearly full, or will be within 3 days",
    ),
    Case(
        "AnnalsDiskUnknown",
        {f"node_filesystem_avail_bytes{{{DISK}}}": "50+0x10 _x90 50+0x20"},
        quiet=(10, 60),
        fires=(90,),
        clears=105,
        labels={"job": "postgres-disk"},
        summary="Nobody watches the disk of PostgreSQL: Prometheus has no filesystem of the job "
        "postgres-disk",
    ),
    Case(
        "AnnalsMarksChanged",
        web("annals_marks_checksum", "", "9+0x60 7+0x5 9+0x2000"),
        quiet=(30,),
        fires=(62,),
        clears=1600,
        summary="Marks of sensitive fields were set or removed within the last day",
    ),
    Case(
        "AnnalsArchiveUnchecked",
        web("annals_archive_oldest_check_timestamp_seconds", "", "0+0x1200 3600000+0x60"),
        quiet=(60, 35 * 1440),
        fires=(36 * 1440,),
        clears=1201 * 60,
        interval="1h",
        summary="An archived day was last checked 36d 0h 0m 0s ago",
    ),
    Case(
        "AnnalsTokensRefused",
        {
            'annals_http_requests_total{instance="w1",status="401"}': "0+0x10 0+40x20 800+0x40",
            'annals_http_requests_total{instance="w1",status="200"}': "0+900x70",
        },
        quiet=(10, 15),
        fires=(28,),
        clears=50,
        summary="600 requests without a valid login or token in 15 minutes",
    ),
    Case(
        "AnnalsOldServiceFails",
        {
            'annals_fallback_requests_total{result="answered"}': "0+8x60",
            'annals_fallback_requests_total{result="failed"}': "0+0x20 0+1x20 20+0x40",
            'annals_fallback_requests_total{result="cut"}': "0+0x20 0+1x20 20+0x40",
        },
        quiet=(10, 20),
        fires=(40,),
        clears=55,
        summary="20% of the questions to the old service have no answer: older versions may be "
        "missing",
    ),
    Case(
        "AnnalsBusy",
        {'annals_expensive_questions_refused_total{instance="w1"}': "0+0x10 0+2x20 40+0x40"},
        quiet=(10, 15),
        fires=(28,),
        clears=50,
        summary="30 expensive questions were refused in 15 minutes: the web is busy with others",
    ),
    Case(
        "AnnalsTooLong",
        {
            'annals_requests_stopped_total{instance="w1"}': "0+0x10 0+2x20 40+0x40",
        },
        quiet=(10, 15),
        fires=(28,),
        clears=50,
        summary="30 requests in 15 minutes did not end within ANNALS_REQUEST_SECONDS",
    ),
]


@cache
def load_rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def make_expectations(case: Case) -> list[dict[str, Any]]:
    rule = load_rules()[case.alert]
    firing = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {
            "summary": case.summary,
            "runbook_url": f"{RUNBOOK}#{case.alert.lower()}",
        },
    }
    moments = [*((m, []) for m in case.quiet), *((m, [firing]) for m in case.fires)]
    return [
        {"alertname": case.alert, "eval_time": f"{minute}m", "exp_alerts": expected}
        for minute, expected in [*moments, (case.clears, [])]
    ]


def test_each_alert_has_a_test_case() -> None:
    assert {case.alert for case in CASES} == set(load_rules())


def test_each_alert_fires_and_clears_as_its_test_case_says(tmp_path: Path) -> None:
    """One run of promtool checks all cases. Each case has only its own rule, because promtool would
    compute all rules for each minute of each case."""
    files = []
    for number, case in enumerate(CASES):
        rule, test = tmp_path / f"{number}-rule.yaml", tmp_path / f"{number}-{case.alert}.yaml"
        groups = [{"name": case.alert, "rules": [load_rules()[case.alert]]}]
        rule.write_text(json.dumps({"groups": groups}))
        fields = [{"series": name, "values": values} for name, values in case.series.items()]
        first = {
            "interval": case.interval,
            "external_labels": {"runbook": RUNBOOK},
            "input_series": fields,
            "alert_rule_test": make_expectations(case),
        }
        common = {"rule_files": [rule.name], "evaluation_interval": case.interval}
        test.write_text(json.dumps({**common, "tests": [first]}))
        files.append(test)
    for words in (("check", "rules", RULES), ("test", "rules", *files)):
        result = subprocess.run(
            [required_programs.promtool(), *words], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stdout + result.stderr


PAGE = (ROOT / "docs/runbook.md").read_text()
ALERTS = [*load_rules().values()]
SECTIONS = dict(re.findall(r"^### (Annals\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
PARTS = ("**Look:**", "**Do:**", "**How long:**")


def test_runbook_has_one_section_for_each_alert_in_the_same_order_as_the_rules() -> None:
    assert list(SECTIONS) == [rule["alert"] for rule in ALERTS]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_runbook_section_of_alert_has_severity_and_all_parts(rule: dict[str, Any]) -> None:
    section = SECTIONS[rule["alert"]]
    means = section.strip()
    assert means.startswith(f"*{rule['labels']['severity']}.* ")
    places = [section.index(part) for part in PARTS]
    assert places == sorted(places)
    assert all(section.count(part) == 1 for part in PARTS)
    look = section[places[0] : places[1]]
    assert "`" in look, "which command, query or log shows it?"


def test_alerts_refer_only_to_jobs_that_prometheus_scrapes() -> None:
    settings = yaml.safe_load((ROOT / "docker/prometheus/prometheus.yaml").read_text())
    jobs = {job["job_name"] for job in settings["scrape_configs"]}
    requested = {
        (rule["alert"], pattern)
        for rule in ALERTS
        for pattern in re.findall(r'\bjob=~?"([^"]+)"', rule["expr"])
    }
    assert requested
    missing = {item for item in requested if not any(re.fullmatch(item[1], job) for job in jobs)}
    assert missing == set()
