"""Rows that the consumer and the cron jobs write, for tests that run neither."""

from datetime import datetime
from typing import Any

from history.common import clock
from history.kinds.entities import ROOT
from history.models import GapRun, MaintainRun
from ingest.models import Ledger, Quarantined


def create_ledger_row(topic: str = ROOT.topics[0], **fields: Any) -> Ledger:
    """Create the ledger row of a topic partition with ten messages, all read and stored.

    Args:
        fields: Values of columns that replace the default values.
    """
    now = clock.now()
    columns = {
        "topic_id": "t",
        "partition": 0,
        "first_offset": 0,
        "next_offset": 10,
        "read": 10,
        "stored": 10,
        "high_watermark": 10,
        "updated_at": now,
        "checked_at": now,
    }
    return Ledger.objects.create(topic=topic, **columns | fields)


def create_quarantined(**fields: Any) -> Quarantined:
    """Create a quarantined message of the topic of applications, with an invalid `updatedAt`.

    Args:
        fields: Values of columns that replace the default values.
    """
    columns = {
        "topic": ROOT.topics[0],
        "topic_id": "t",
        "partition": 0,
        "offset": 7,
        "detail": "",
        "reason": "bad_updated_at",
        "first_seen": clock.now(),
    }
    return Quarantined.objects.create(**columns | fields)


def create_quarantined_version(id: str, version: int, **fields: Any) -> Quarantined:
    """Create a message in quarantine that names a version of an application."""
    return create_quarantined(
        **{"entity": ROOT.name, "entity_id": id, "version": version, **fields}
    )


def record_maintain_run(moment: datetime) -> None:
    counts = dict.fromkeys(("exit_code", "created", "dropped", "held", "busy", "broken"), 0)
    MaintainRun.objects.create(started_at=moment, seconds=1, **counts)


def record_gap_run(moment: datetime, quarantined: int = 0) -> None:
    GapRun.objects.create(
        id=1,
        started_at=moment,
        seconds=1,
        days=3,
        quarantined=quarantined,
        removed_before=moment.date(),
    )
