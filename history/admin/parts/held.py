"""What the screens say of messages in quarantine: changes that came and are not shown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import trace
from history.admin.parts import gaps
from history.admin.parts.cards import title
from history.base.moments import when
from history.base.plain_text import figure
from history.entities import BY_NAME, Entity
from history.held_messages import OpenMessages, Quarantined
from history.reasons import REASONS
from history.record import MAX_VERSION
from history.timeline import OpenQuestion, Reader, Version
from history.trace.words import Fill

# Sentences of one notice.
MOST = 5


@dataclass(frozen=True, slots=True)
class Words:
    """How sentences are written: as HTML, or as plain text."""

    fill: Fill = format_html
    when: Callable[[datetime], str] = when

    def message(self, message: Quarantined, *, whose: bool = False) -> str:
        """Return a sentence on one message. whose: with the kind and id of its document."""
        text = _("A message with version {n} came on {at} and is in quarantine: {reason}.")
        if message.version is None:
            text = _(
                "A message came on {at} and is in quarantine: {reason}. Its version cannot be "
                "read, so its place is not known."
            )
        return self._of(message, text, whose=whose)

    def above(self, message: Quarantined, *, whose: bool = False) -> str:
        """Return the same of a version that the store does not have."""
        if message.version is None:
            return self.message(message, whose=whose)
        text = _("Version {n} came on {at} and is in quarantine: {reason}.")
        return self._of(message, text, whose=whose)

    def twin(self, message: Quarantined) -> str:
        """Return the same of a version whose number the store has."""
        text = _(
            "Another message with the number of this version came on {at} and is in quarantine: "
            "{reason}."
        )
        return self._of(message, text, whose=False)

    def _of(self, message: Quarantined, text: str, *, whose: bool) -> str:
        said = self.fill(
            text,
            n=message.version,
            at=self.when(message.came_at),
            reason=REASONS.get(message.reason, message.reason),
        )
        if not whose:
            return said
        kind = title(BY_NAME[message.entity])
        return self.fill("{kind} {id}: {said}", kind=kind, id=message.id, said=said)

    def several(
        self, messages: Sequence[Quarantined], say: Callable[[Quarantined], str], *, cut: bool
    ) -> list[str]:
        """Return the sentences on the first MOST messages, and how many more there are."""
        found = [say(each) for each in messages[:MOST]]
        if more := len(messages) - MOST:
            text = ngettext("And {n} more.", "And {n} more.", more)
            found += [text.format(n=_figure(more, cut=cut))] if more > 0 else []
        return found


HTML = Words()


@dataclass(frozen=True, slots=True)
class Notice:
    """What a page says of the open messages about what it shows. headline: empty if there is none.
    whole: whether all that was read of it is stored. nameless: a sentence on messages that may be
    about anything; empty if there is none."""

    headline: str
    sentences: Sequence[str]
    nameless: str

    @property
    def whole(self) -> bool:
        return not self.headline and not self.nameless


def notice(messages: OpenMessages, *, merged: bool, words: Words = HTML) -> Notice:
    """Return the notice of a page. merged: it shows several documents."""
    say = words.message
    return Notice(
        headline(messages),
        words.several(messages.messages, lambda each: say(each, whose=merged), cut=messages.cut),
        _nameless(messages.nameless),
    )


def headline(messages: OpenMessages) -> str:
    """Return how many changes are not shown; empty if none is in quarantine."""
    if not messages.count:
        return ""
    text = ngettext(
        "{n} change came and is not shown here: its message is in quarantine.",
        "{n} changes came and are not shown here: their messages are in quarantine.",
        messages.count,
    )
    return text.format(n=_figure(messages.count, cut=messages.cut))


def mark(messages: Sequence[Quarantined]) -> str:
    """Return what a line of a list says of them; empty if there is none."""
    if not messages:
        return ""
    text = ngettext("{n} change in quarantine", "{n} changes in quarantine", len(messages))
    return text.format(n=figure(len(messages)))


def above(messages: OpenMessages, shown: Iterable[Version], *, merged: bool) -> list[str]:
    """Return the sentences for the top of a list of versions, newest first: on messages above the
    highest version of their document, and on those whose place is not known."""
    highest: dict[tuple[str, str], int] = {}
    for each in shown:
        place = each.entity.name, each.id
        highest[place] = max(each.version, highest.get(place, 0))
    found = [
        each
        for each in messages.messages
        if each.version is None or each.version > highest.get((each.entity, each.id), -1)
    ]
    return HTML.several(found, lambda each: HTML.above(each, whose=merged), cut=messages.cut)


def twins(messages: OpenMessages) -> Mapping[tuple[str, str, int], list[str]]:
    """Return the sentences for versions that are stored, by kind, id and number."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for each in messages.messages:
        if each.version is not None:
            its = found.setdefault((each.entity, each.id, each.version), [])
            its += [HTML.twin(each)] if len(its) < MOST else []
    return found


def of_unknown(
    reader: Reader, entities: Sequence[Entity], ids: Sequence[str]
) -> list[tuple[str, Entity, list[str]]]:
    """Return the sentences on what came of documents of which the store has nothing: id, kind and
    sentences, MOST at most. Of an application also those on children that only it names."""
    documents = [(entity, id) for entity in entities for id in ids]
    roots = ids if any(entity.root for entity in entities) else ()
    opened = reader.ask_open_messages(OpenQuestion(entities, documents, roots))
    lines: list[tuple[str, Entity, list[str]]] = []
    for entity in entities:
        came = reader.came(entity, [(id, 0, MAX_VERSION) for id in ids])
        for id in ids:
            its = [
                text
                for each in list(came.get(id, {}).values())[:MOST]
                for text in gaps.said(trace.quarantined_fate(each))
            ]
            about = opened.about(entity.name, id)
            its += [HTML.message(each) for each in about if each.version is None]
            if entity.root:
                children = opened.of_application(entity.name, id)
                others = [each for each in children if each not in about]
                its += [HTML.above(each, whose=True) for each in others]
            if its:
                lines.append((id, entity, its[:MOST]))
    return lines


def _nameless(count: int) -> str:
    if not count:
        return ""
    text = ngettext(
        "{n} message in quarantine does not say which document it is about: it may be this one.",
        "{n} messages in quarantine do not say which document they are about: it may be this one.",
        count,
    )
    return text.format(n=figure(count))


def _figure(number: int, *, cut: bool) -> str:
    return f"{figure(number)}+" if cut else figure(number)
