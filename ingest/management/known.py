"""Refuses questions about topics and messages that do not exist: their answer would be nothing."""

from collections.abc import Iterable
from difflib import get_close_matches

from django.core.management.base import CommandError

from history.entities import BY_TOPIC
from ingest.models import Ledger, Quarantined


def refuse_unknown_topic(topic: str | None) -> None:
    """Raises CommandError for a topic of which nothing is declared, read or in quarantine."""
    if topic is None or topic in BY_TOPIC:
        return
    if not any(model.objects.filter(topic=topic).exists() for model in (Ledger, Quarantined)):
        near = get_close_matches(topic, BY_TOPIC, 3) or sorted(BY_TOPIC)[:3]
        raise CommandError(
            f"there is no topic {topic!r}; there is, for example, {', '.join(near)}."
        )


def refuse_missing_ids(ids: Iterable[int]) -> None:
    """Raises CommandError for ids of which the quarantine has no message."""
    wanted = set(ids)
    there = set(Quarantined.objects.filter(id__in=wanted).values_list("id", flat=True))
    if missing := sorted(wanted - there):
        raise CommandError(
            f"there is no message {', '.join(map(str, missing))} in quarantine, so nothing was "
            "done. `quarantine list --ids` has the ids."
        )
