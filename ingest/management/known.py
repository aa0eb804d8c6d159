"""Refuses questions about topics and reasons that do not exist: their answer would be nothing."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from django.core.management.base import CommandError

from history.entities import BY_TOPIC
from history.reasons import REASONS
from ingest.models import Ledger, Quarantined


def refuse_unknown_topic(topic: str | None) -> None:
    """Raises CommandError for a topic of which nothing is declared, read or in quarantine."""
    if topic is None or topic in BY_TOPIC:
        return
    if not any(model.objects.filter(topic=topic).exists() for model in (Ledger, Quarantined)):
        raise CommandError(_sentence("topic", topic, BY_TOPIC))


def refuse_unknown_reason(reason: str | None) -> None:
    """Raises CommandError for a reason that no release of Annals gives."""
    if reason is None or reason in REASONS:
        return
    if not Quarantined.objects.filter(reason=reason).exists():
        raise CommandError(_sentence("reason", reason, REASONS))


def refuse_missing_ids(ids: Iterable[int]) -> None:
    """Raises CommandError for ids of which the quarantine has no message."""
    wanted = set(ids)
    there = set(Quarantined.objects.filter(id__in=wanted).values_list("id", flat=True))
    if missing := sorted(wanted - there):
        raise CommandError(
            f"there is no message {', '.join(map(str, missing))} in quarantine, so nothing was "
            "done. `quarantine list --ids` has the ids."
        )


def _sentence(what: str, given: str, known: Collection[str]) -> str:
    near = get_close_matches(given, known, 3) or sorted(known)[:3]
    return f"there is no {what} {given!r}; there is, for example, {', '.join(near)}."
