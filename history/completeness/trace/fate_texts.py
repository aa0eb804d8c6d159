"""Describes the fate of a version or message in sentences, and as an answer of the API."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from msgspec import Meta

from history.common.answer_types import (
    Answer,
    Count,
    KindName,
    Moment,
    Offset,
    VersionNumber,
    choose_from,
)
from history.completeness.trace.fate import Fate, FateCause, FateState
from history.store.quarantine_reasons import REASONS

_OF_VERSION: Final[Mapping[FateCause, Any]] = {
    FateCause.STORED: gettext_lazy("Version {n} is stored."),
    FateCause.STORED_FROM: gettext_lazy("Version {n} was stored on {at}, from {place}."),
    FateCause.CANNOT_BE_READ: gettext_lazy(
        "Version {n} is stored, but stored versions of {day} are damaged and cannot be read."
    ),
    FateCause.TOO_OLD: gettext_lazy(
        "Version {n} came on {at}, when it was older than what is kept."
    ),
    FateCause.REMOVED: gettext_lazy("Version {n} was removed: it is past the days that are kept."),
    FateCause.IN_QUARANTINE: gettext_lazy(
        "Version {n} came on {at} and is in quarantine: {reason}."
    ),
    FateCause.DISCARDED: gettext_lazy(
        "Version {n} came on {at}, was in quarantine and was discarded on {then}: {reason}."
    ),
    FateCause.NEVER_SEEN: gettext_lazy("Version {n} was never seen."),
    FateCause.ONLY_OLD: gettext_lazy("Version {n} is in the old system only."),
    FateCause.NEVER_THERE: gettext_lazy("The history has no version {n}."),
}
_OF_MESSAGE: Final[Mapping[FateCause, Any]] = {
    FateCause.STORED_FROM: gettext_lazy(
        "The message was stored on {at}, after it was in quarantine."
    ),
    FateCause.READ: gettext_lazy("The message was read, and its version was stored."),
    FateCause.READ_BEFORE_NOTES: gettext_lazy(
        "The message was read. Its version was stored, or had been stored before, or was too old, "
        "or was in quarantine until it was removed from there. For messages that were read so long "
        "ago, only the sums are known."
    ),
    FateCause.REPEATED: gettext_lazy(
        "The message was read on {at}: its version was stored before."
    ),
    FateCause.TOO_OLD: gettext_lazy(
        "The message was read on {at}: its version was older than what is kept."
    ),
    FateCause.IN_QUARANTINE: gettext_lazy(
        "The message came on {at} and is in quarantine: {reason}."
    ),
    FateCause.DISCARDED: gettext_lazy(
        "The message came on {at}, was in quarantine and was discarded on {then}: {reason}."
    ),
    FateCause.UNREAD: gettext_lazy("The broker has the message; it is not read yet."),
    FateCause.LOST: gettext_lazy("The broker deleted the message before it was read."),
    FateCause.NO_MESSAGE: gettext_lazy(
        "No message has this offset: it marks a transaction, or its message was removed."
    ),
    FateCause.NOT_SENT: gettext_lazy(
        "There is no such message yet: the partition ends before this offset, or does not exist."
    ),
    FateCause.BEFORE_FIRST: gettext_lazy(
        "Nothing is known of the message: Annals began to read at a later offset."
    ),
    FateCause.NEVER_READ: gettext_lazy(
        "Nothing is known of the message: its partition was never read."
    ),
}

# Puts values into a template: str.format, or a function that also escapes them.
FillTemplate = Callable[..., str]


def format_minute(moment: datetime) -> str:
    """Format a moment to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def describe_fate(
    fate: Fate,
    fill: FillTemplate = str.format,
    format_moment: Callable[[datetime], str] = format_minute,
) -> list[str]:
    """Return sentences about a fate in the viewer's language, without content of a document.

    Args:
        fill: Puts values into a template. For HTML it also escapes them.
        format_moment: Formats a moment.
    """
    version = fate.name.version if fate.name else None
    template = _OF_VERSION.get(fate.cause) if version is not None else None
    position = fate.position
    values = {
        "n": version,
        "at": format_moment(fate.at) if fate.at else "?",
        "then": format_moment(fate.settled_at) if fate.settled_at else "?",
        "place": f"{position.topic}[{position.partition}]@{position.offset}" if position else "?",
        "reason": REASONS.get(fate.reason, fate.reason),
        "day": fate.day or "?",
    }
    return [
        fill(str(template or _OF_MESSAGE[fate.cause]), **values),
        *_describe_possible_fates(fate, fill, format_moment),
    ]


def _describe_possible_fates(
    fate: Fate, fill: FillTemplate, format_moment: Callable[[datetime], str]
) -> list[str]:
    """Return sentences about the messages that might contain a version that Annals never got."""
    possible = fate.may_be
    if possible is None:
        return []
    texts = []
    if possible.silence:
        text = _(
            "No consumer has read its topics since {at}. The version may have been sent later."
        )
        if possible.silence.brokers:
            text = _("Kafka has not answered since {at}. The version may have been sent later.")
        texts.append(fill(text, at=format_moment(possible.silence.since)))
    elif possible.complete_to and not possible.unread and not possible.lost:
        text = _("Everything that was sent up to {at} has been read.")
        texts.append(fill(text, at=format_moment(possible.complete_to)))
    if possible.unread is None:
        texts.append(_("It is not known how many messages of its topics are not read yet."))
    elif possible.unread:
        text = ngettext(
            "{n} message of its topics is not read yet. It may bring this version.",
            "{n} messages of its topics are not read yet. One of them may bring this version.",
            possible.unread,
        )
        texts.append(fill(text, n=_format_number(possible.unread)))
    if possible.lost:
        text = ngettext(
            "The broker deleted {n} message of its topics before it was read. It may have had this "
            "version.",
            "The broker deleted {n} messages of its topics before they were read. One of them may "
            "have had this version.",
            possible.lost,
        )
        texts.append(fill(text, n=_format_number(possible.lost)))
    if possible.expired:
        text = ngettext(
            "{n} message of its topics came after its retention. It may have had this version.",
            "{n} messages of its topics came after their retention. One of them may have had this "
            "version.",
            possible.expired,
        )
        texts.append(fill(text, n=_format_number(possible.expired)))
    return texts


def _format_number(number: int) -> str:
    return number_format(number, force_grouping=True)


class PossibleFateFigures(Answer, kw_only=True):
    """For a traced version that is not stored: how many messages of each fate might contain it.

    See PossibleFates.
    """

    unread: Count | None
    lost: Count
    expired: Count


class FateDescription(Answer, kw_only=True):
    """The fate of one version or message, as `GET trace` answers it."""

    state: Annotated[
        str,
        choose_from(state.value for state in FateState),
        Meta(
            description="unknown: nothing shows that the version or message ever existed; damaged: "
            "it is stored, but cannot be read."
        ),
    ]
    certain: Annotated[
        bool,
        Meta(description="false: the message may have been repeated or expired, too."),
    ]
    at: Annotated[Moment | None, Meta(description="When this happened; null: not known.")]
    reason: Annotated[
        Annotated[str, choose_from(REASONS)] | None,
        Meta(description="Why the message is in quarantine."),
    ]
    why: Annotated[str, Meta(description="The fate in words.")]
    kind: KindName | None
    id: str | None
    version: VersionNumber | None
    updated_at: Annotated[Moment | None, Meta(description="updatedAt of a stored version.")]
    topic: Annotated[str | None, Meta(description="The topic of the message; null: not known.")]
    partition: Count | None
    offset: Offset | None
    may_be: Annotated[
        PossibleFateFigures | None,
        Meta(
            description="Only for a version that was never seen: how many messages of its topics "
            "are not read yet (null: not known), were lost, or expired."
        ),
    ]


def make_description(
    fate: Fate, format_moment: Callable[[datetime], str], *, with_name: bool = True
) -> FateDescription:
    """Make the answer of `GET trace` about a fate.

    Args:
        format_moment: Formats a moment.
        with_name: Whether the answer has the kind, id and number of the version.
    """
    name, position, may_be = fate.name if with_name else None, fate.position, fate.may_be
    return FateDescription(
        state=fate.state.value,
        certain=fate.certain,
        at=None if fate.at is None else format_moment(fate.at),
        reason=fate.reason or None,
        why=" ".join(describe_fate(fate)),
        kind=(name.entity or None) if name else None,
        id=(name.id or None) if name else None,
        version=name.version if name else None,
        updated_at=None if fate.made_at is None else format_moment(fate.made_at),
        topic=position.topic if position else None,
        partition=position.partition if position else None,
        offset=position.offset if position else None,
        may_be=None
        if may_be is None
        else PossibleFateFigures(unread=may_be.unread, lost=may_be.lost, expired=may_be.expired),
    )
