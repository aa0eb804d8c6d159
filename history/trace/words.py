"""The fate of a version or message in words, and as JSON."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from history.reasons import REASONS
from history.trace.fate import Fate, How

_OF_VERSION: Final[Mapping[How, Any]] = {
    How.STORED: gettext_lazy("Version {n} is stored."),
    How.STORED_FROM: gettext_lazy("Version {n} was stored on {at}, from {place}."),
    How.CANNOT_BE_READ: gettext_lazy(
        "Version {n} is stored, but stored versions of {day} are damaged and cannot be read."
    ),
    How.TOO_OLD: gettext_lazy("Version {n} came on {at}, when it was older than what is kept."),
    How.REMOVED: gettext_lazy("Version {n} was removed: it is past the days that are kept."),
    How.IN_QUARANTINE: gettext_lazy("Version {n} came on {at} and is in quarantine: {reason}."),
    How.DISCARDED: gettext_lazy(
        "Version {n} came on {at}, was in quarantine and was discarded on {then}: {reason}."
    ),
    How.NEVER_SEEN: gettext_lazy("Version {n} was never seen."),
    How.ONLY_OLD: gettext_lazy("Version {n} is in the old system only."),
    How.NEVER_THERE: gettext_lazy("The history has no version {n}."),
}
_OF_MESSAGE: Final[Mapping[How, Any]] = {
    How.STORED_FROM: gettext_lazy("The message was stored on {at}, after it was in quarantine."),
    How.READ: gettext_lazy("The message was read, and its version was stored."),
    How.READ_BEFORE_NOTES: gettext_lazy(
        "The message was read. Its version was stored, or had been stored before, or was too old, "
        "or was in quarantine until it was removed there: of messages that were read so long ago "
        "only the sums are known."
    ),
    How.REPEATED: gettext_lazy("The message was read on {at}: its version was stored before."),
    How.TOO_OLD: gettext_lazy(
        "The message was read on {at}: its version was older than what is kept."
    ),
    How.IN_QUARANTINE: gettext_lazy("The message came on {at} and is in quarantine: {reason}."),
    How.DISCARDED: gettext_lazy(
        "The message came on {at}, was in quarantine and was discarded on {then}: {reason}."
    ),
    How.UNREAD: gettext_lazy("The broker has the message; it is not read yet."),
    How.LOST: gettext_lazy("The broker deleted the message before it was read."),
    How.NO_MESSAGE: gettext_lazy(
        "No message has this offset: it marks a transaction, or its message was removed."
    ),
    How.NOT_SENT: gettext_lazy(
        "There is no such message yet: the partition ends before it, or is not there."
    ),
    How.BEFORE_FIRST: gettext_lazy("Nothing is known of the message: the reading began after it."),
    How.NEVER_READ: gettext_lazy("Nothing is known of the message: its partition was never read."),
}

# Puts values into a template: str.format, or what also escapes them.
Fill = Callable[..., str]


def plain(moment: datetime) -> str:
    """To the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def said(fate: Fate, fill: Fill = str.format, when: Callable[[datetime], str] = plain) -> list[str]:
    """Sentences in the reader's language, without the content of a document. fill: makes a text of
    a template and its values; when: makes a text of a moment."""
    version = fate.name.version if fate.name else None
    template = _OF_VERSION.get(fate.how) if version is not None else None
    place = fate.place
    values = {
        "n": version,
        "at": when(fate.at) if fate.at else "?",
        "then": when(fate.settled_at) if fate.settled_at else "?",
        "place": f"{place.topic}[{place.partition}]@{place.offset}" if place else "?",
        "reason": REASONS.get(fate.reason, fate.reason),
        "day": fate.day or "?",
    }
    return [fill(str(template or _OF_MESSAGE[fate.how]), **values), *_may_be(fate, fill, when)]


def _may_be(fate: Fate, fill: Fill, when: Callable[[datetime], str]) -> list[str]:
    """Among which messages a version may be that was never seen."""
    found = fate.may_be
    if found is None:
        return []
    texts = []
    if found.silence:
        text = _("Nobody has read its topics since {at}: it may have been sent later.")
        if found.silence.brokers:
            text = _("Kafka has not answered since {at}: it may have been sent later.")
        texts.append(fill(text, at=when(found.silence.since)))
    elif found.complete_to and not found.unread and not found.lost:
        text = _("Everything that was sent up to {at} has been read.")
        texts.append(fill(text, at=when(found.complete_to)))
    if found.unread is None:
        texts.append(_("How many messages of its topics are not read yet is not known."))
    elif found.unread:
        text = ngettext(
            "{n} message of its topics is not read yet: it may be that one.",
            "{n} messages of its topics are not read yet: it may be among them.",
            found.unread,
        )
        texts.append(fill(text, n=_figure(found.unread)))
    if found.lost:
        text = ngettext(
            "The broker deleted {n} message of its topics before it was read: it may be that one.",
            "The broker deleted {n} messages of its topics before they were read: it may be among "
            "them.",
            found.lost,
        )
        texts.append(fill(text, n=_figure(found.lost)))
    if found.expired:
        text = ngettext(
            "{n} message of its topics came after its retention: it may be that one.",
            "{n} messages of its topics came after their retention: it may be among them.",
            found.expired,
        )
        texts.append(fill(text, n=_figure(found.expired)))
    return texts


def _figure(number: int) -> str:
    return number_format(number, force_grouping=True)


def as_object(fate: Fate, when: Callable[[datetime], str], *, named: bool = True) -> dict[str, Any]:
    """The fate as JSON values. when: makes a text of a moment. named: whether to say which version
    a message is."""
    name, place, may_be = fate.name if named else None, fate.place, fate.may_be
    return {
        "state": fate.state.value,
        "certain": fate.certain,
        "at": fate.at and when(fate.at),
        "reason": fate.reason or None,
        "why": " ".join(said(fate)),
        "kind": (name.entity or None) if name else None,
        "id": (name.id or None) if name else None,
        "version": name.version if name else None,
        "updatedAt": fate.made_at and when(fate.made_at),
        "topic": place.topic if place else None,
        "partition": place.partition if place else None,
        "offset": place.offset if place else None,
        "mayBe": may_be
        and {"unread": may_be.unread, "lost": may_be.lost, "expired": may_be.expired},
    }
