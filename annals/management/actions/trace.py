"""What `annals trace` does."""

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from annals.access.journal.words import Action
from annals.access.journal.write import record
from history import quarantined, timeline, trace
from history.base.plain_text import one_line
from history.entities import BY_NAME
from history.record import ID_LENGTH
from history.trace import Bounds, Fate, MessagePlace
from ingest.management.actions.consume import brokers
from ingest.source import kafka
from ingest.source.brokers import Brokers
from ingest.source.client import Unreachable

OF_VERSION = ("entity", "id", "version")

OF_MESSAGE = ("topic", "partition", "offset")


def run(command: BaseCommand, **options: Any) -> None:
    """Print what became of it. options: as the command declares them. Raises CommandError."""
    groups = [
        names
        for names in (OF_VERSION, OF_MESSAGE)
        if any(options[name] is not None for name in names)
    ]
    missing = [name for names in groups for name in names if options[name] is None]
    if len(groups) != 1 or set(missing) - {"version"}:
        raise CommandError(
            "Give --entity and --id, and --version unless you look for a message in quarantine, or "
            "--topic, --partition and --offset."
        )
    of_version = groups[0] is OF_VERSION
    fates = _of_version(options) if of_version else [_of_message(command, options)]
    with translation.override("en"):
        for fate in fates:
            if options["json"]:
                command.stdout.write(json.dumps(_as_object(fate)))
            else:
                _print(command, fate)


def _of_version(options: dict[str, Any]) -> list[Fate]:
    entity, id, number = BY_NAME[options["entity"]], options["id"], options["version"]
    if not 0 < len(id) <= ID_LENGTH or "\0" in id:
        raise CommandError(f"--id must have 1 to {ID_LENGTH} characters.")
    record(
        Action.VERSION,
        "trace quarantine" if number is None else f"trace version {number}",
        entity=entity.name,
        entity_id=id,
        application=id if entity.root else "",
    )
    if number is not None:
        return [trace.of_version(timeline.on_host(), entity, id, number)]
    found = [trace.quarantined_fate(each) for each in quarantined.of_document(entity, id)]
    if not found:
        raise CommandError("None of its messages is in quarantine. Give --version.")
    return found


def _of_message(command: BaseCommand, options: dict[str, Any]) -> Fate:
    place = MessagePlace(*(options[name] for name in OF_MESSAGE))
    record(Action.VERSION, f"trace {place.topic}[{place.partition}]@{place.offset}")
    return trace.of_message(place, None if options["offline"] else _broker(command, place))


def _broker(command: BaseCommand, place: MessagePlace) -> Bounds | None:
    """What the broker has of the partition; None if it does not say."""
    partition = (place.topic, place.partition)
    try:
        asked = Brokers(*brokers()).fetch_bounds([partition])
        if not asked:
            return Bounds(0, 0)
        [(source, (low, end))] = asked.items()
        # The embedded broker counts the last batch as one message.
        if place.offset >= end:
            behind = kafka.peek_messages(*brokers(), partition, place.offset, 1)
            if any(message.offset == place.offset for message in behind):
                end = place.offset + 1
    except (Unreachable, CommandError) as error:
        command.stderr.write(f"{error}. What is not read yet is the consumer's last record.")
        return None
    return Bounds(low, end, source.topic_id)


def _print(command: BaseCommand, fate: Fate) -> None:
    command.stdout.write(one_line(f"{fate.state.value}: {' '.join(trace.said(fate))}"))
    for name, value in _as_object(fate).items():
        if value is not None and name not in ("state", "why", "mayBe", "certain"):
            command.stdout.write(f"  {name}: {one_line(str(value))}")


def _as_object(fate: Fate) -> dict[str, Any]:
    """As `GET trace`, and what is wrong with a message in quarantine."""
    return {**trace.as_object(fate, datetime.isoformat), "detail": fate.detail or None}
