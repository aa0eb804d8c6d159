"""Refuses arguments of commands that name an unknown topic or message."""

from collections.abc import Iterable
from difflib import get_close_matches

from django.core.management.base import CommandError

from history.kinds.entities import BY_TOPIC
from ingest.models import Ledger, Quarantined


def refuse_unknown_topic(topic: str | None) -> None:
    """Raise CommandError unless a kind, a ledger row or a quarantined message has this topic."""
    if topic is None or topic in BY_TOPIC:
        return
    if not any(model.objects.filter(topic=topic).exists() for model in (Ledger, Quarantined)):
        near = get_close_matches(topic, BY_TOPIC, 3) or sorted(BY_TOPIC)[:3]
        raise CommandError(
            f"the topic {topic!r} does not exist; known topics are, for example, {', '.join(near)}."
        )


def refuse_missing_ids(ids: Iterable[int]) -> None:
    """Raise CommandError for ids that are not in quarantine."""
    requested = set(ids)
    stored = set(Quarantined.objects.filter(id__in=requested).values_list("id", flat=True))
    if missing := sorted(requested - stored):
        raise CommandError(
            f"not in quarantine: {', '.join(map(str, missing))}; so nothing was done. "
            "`annals quarantine list --ids` lists the ids."
        )
