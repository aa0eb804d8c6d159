"""What `annals trace` does."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import translation

from annals.access.journal.words import Action
from annals.access.journal.write import record
from history import timeline, trace
from history.base.plain_text import one_line
from history.entities import BY_NAME
from history.record import ID_LENGTH
from history.trace import Bounds, Fate, MessagePlace
from ingest.management.actions.consume import brokers
from ingest.source import kafka
from ingest.source.brokers import Brokers
from ingest.source.client import TIMEOUT_SECONDS, Unreachable

OF_VERSION = ("entity", "id", "version")

OF_MESSAGE = ("topic", "partition", "offset")


class Run:
    """The action of one call of the command."""

    def __init__(self, command: BaseCommand) -> None:
        self.stdout, self.stderr = command.stdout, command.stderr

    def handle(self, **options: Any) -> None:
        groups = [
            names
            for names in (OF_VERSION, OF_MESSAGE)
            if any(options[name] is not None for name in names)
        ]
        if len(groups) != 1 or any(options[name] is None for name in groups[0]):
            raise CommandError(
                "Give --entity, --id and --version, or --topic, --partition and --offset."
            )
        of_version = groups[0] is OF_VERSION
        fate = self._of_version(options) if of_version else self._of_message(options)
        with translation.override("en"):
            if options["json"]:
                self.stdout.write(json.dumps(as_json(fate)))
            else:
                self._print(fate)

    def _of_version(self, options: dict[str, Any]) -> Fate:
        entity, id, number = BY_NAME[options["entity"]], options["id"], options["version"]
        if not 0 < len(id) <= ID_LENGTH or "\0" in id:
            raise CommandError(f"--id must have 1 to {ID_LENGTH} characters.")
        record(
            Action.VERSION,
            f"trace version {number}",
            entity=entity.name,
            entity_id=id,
            application=id if entity.root else "",
        )
        return trace.of_version(timeline.on_host(), entity, id, number)

    def _of_message(self, options: dict[str, Any]) -> Fate:
        place = MessagePlace(*(options[name] for name in OF_MESSAGE))
        record(Action.VERSION, f"trace {place.topic}[{place.partition}]@{place.offset}")
        return trace.of_message(place, None if options["offline"] else self._broker(place))

    def _broker(self, place: MessagePlace) -> Bounds | None:
        """What the broker has of the partition; None if it does not say."""
        partition = (place.topic, place.partition)
        try:
            asked = Brokers(*brokers()).bounds([partition])
            if not asked:
                return Bounds(0, 0)
            [(source, (low, end))] = asked.items()
            # The embedded broker counts the last batch as one message.
            if place.offset >= end:
                behind = kafka.peek(*brokers(), partition, place.offset, 1)
                if any(message.offset == place.offset for message in behind):
                    end = place.offset + 1
        except Unreachable as error:
            self.stderr.write(
                f"{error}. Kafka did not answer in {TIMEOUT_SECONDS:g} seconds: what is not read "
                "yet is the consumer's last record."
            )
            return None
        return Bounds(low, end, source.topic_id)

    def _print(self, fate: Fate) -> None:
        self.stdout.write(one_line(f"{fate.state.value}: {' '.join(trace.said(fate))}"))
        for name, value in as_json(fate).items():
            if value is not None and name not in ("state", "why", "mayBe", "certain"):
                self.stdout.write(f"  {name}: {one_line(str(value))}")


def as_json(fate: Fate) -> dict[str, Any]:
    """The fate as JSON values, with the names of `GET trace`."""
    name, place, may_be = fate.name, fate.place, fate.may_be
    return {
        "state": fate.state.value,
        "certain": fate.certain,
        "at": fate.at and fate.at.isoformat(),
        "reason": fate.reason or None,
        "detail": fate.detail or None,
        "why": " ".join(trace.said(fate)),
        "kind": (name.entity or None) if name else None,
        "id": (name.id or None) if name else None,
        "version": name.version if name else None,
        "updatedAt": fate.made_at and fate.made_at.isoformat(),
        "topic": place.topic if place else None,
        "partition": place.partition if place else None,
        "offset": place.offset if place else None,
        "mayBe": may_be
        and {"unread": may_be.unread, "lost": may_be.lost, "expired": may_be.expired},
    }
