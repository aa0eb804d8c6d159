"""Sentences with which screens say that messages about the shown documents are in quarantine."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history import timeline
from history.admin.components import gaps
from history.admin.components.cards import get_kind_title
from history.common.moment_filter import when
from history.common.plain_text import format_figure
from history.completeness import trace
from history.completeness.trace.fate_texts import FillTemplate
from history.documents.record import MAX_VERSION
from history.kinds.entities import BY_NAME, EntityKind
from history.store.quarantine_reasons import REASONS
from history.store.quarantined_messages import OpenMessages, QuarantinedMessage, VersionRange
from history.store.versions import EntityRef
from history.timeline import HistoryReader, OpenMessagesQuestion, Version

# The most sentences of one notice.
MAX_SENTENCES = 5


@dataclass(frozen=True, slots=True)
class SentenceWriter:
    """Writes sentences on messages in quarantine, as HTML or as plain text."""

    fill: FillTemplate = format_html
    when: Callable[[datetime], str] = when

    def describe_message(self, message: QuarantinedMessage, *, with_document: bool = False) -> str:
        """Return a sentence on a quarantined message.

        `with_document` adds the kind and id of the document that the message is about.
        """
        text = _("A message with version {n} came on {at} and is in quarantine: {reason}.")
        if message.version is None:
            text = _(
                "A message came on {at} and is in quarantine: {reason}. Its version cannot be "
                "read, so its place is not known."
            )
        return self._fill_sentence(message, text, with_document=with_document)

    def describe_newer_message(
        self, message: QuarantinedMessage, *, with_document: bool = False
    ) -> str:
        """Return a sentence on a quarantined message with a newer version than all stored ones."""
        if message.version is None:
            return self.describe_message(message, with_document=with_document)
        text = _("Version {n} came on {at} and is in quarantine: {reason}.")
        return self._fill_sentence(message, text, with_document=with_document)

    def describe_repeated_number(self, message: QuarantinedMessage) -> str:
        """Return a sentence on a quarantined message that has the number of a stored version.

        The card of the stored version shows the sentence.
        """
        text = _(
            "Another message with the number of this version came on {at} and is in quarantine: "
            "{reason}."
        )
        return self._fill_sentence(message, text, with_document=False)

    def _fill_sentence(self, message: QuarantinedMessage, text: str, *, with_document: bool) -> str:
        sentence = self.fill(
            text,
            n=message.version,
            at=self.when(message.came_at),
            reason=REASONS.get(message.reason, message.reason),
        )
        if not with_document:
            return sentence
        kind = get_kind_title(BY_NAME[message.entity])
        return self.fill("{kind} {id}: {said}", kind=kind, id=message.id, said=sentence)

    def describe_first_messages(
        self,
        messages: Sequence[QuarantinedMessage],
        describe: Callable[[QuarantinedMessage], str],
        *,
        has_more: bool,
    ) -> list[str]:
        """Return a sentence on each of the first MAX_SENTENCES messages, and one on the rest.

        `has_more` says that there are further messages that `messages` does not have.
        """
        sentences = [describe(message) for message in messages[:MAX_SENTENCES]]
        if more := len(messages) - MAX_SENTENCES:
            text = ngettext("And {n} more.", "And {n} more.", more)
            sentences += [text.format(n=_format_count(more, has_more))] if more > 0 else []
        return sentences


HTML = SentenceWriter()


@dataclass(frozen=True, slots=True)
class OpenMessagesNotice:
    """A notice that messages about the documents of a page are in quarantine.

    Attributes:
        headline: A sentence with the number of open messages, or "".
        sentences: A sentence on each of the first messages.
        nameless: A sentence on messages that do not name their document, or "".
    """

    headline: str
    sentences: Sequence[str]
    nameless: str

    @property
    def whole(self) -> bool:
        return not self.headline and not self.nameless


def make_notice(
    messages: OpenMessages, *, merged: bool, words: SentenceWriter = HTML
) -> OpenMessagesNotice:
    """Return the notice of a page. `merged` says that the page shows several documents."""
    return OpenMessagesNotice(
        format_headline(messages),
        words.describe_first_messages(
            messages.messages,
            lambda message: words.describe_message(message, with_document=merged),
            has_more=messages.has_more,
        ),
        _describe_nameless(messages.nameless),
    )


def format_headline(messages: OpenMessages) -> str:
    """Return a sentence with the number of open messages, or "" if there are none."""
    if not messages.count:
        return ""
    text = ngettext(
        "{n} change came and is not shown here: its message is in quarantine.",
        "{n} changes came and are not shown here: their messages are in quarantine.",
        messages.count,
    )
    return text.format(n=_format_count(messages.count, messages.has_more))


def format_mark(messages: Sequence[QuarantinedMessage]) -> str:
    """Return a text with the number of messages in quarantine, or "" if there are none."""
    if not messages:
        return ""
    text = ngettext("{n} change in quarantine", "{n} changes in quarantine", len(messages))
    return text.format(n=format_figure(len(messages)))


def describe_messages_above(
    messages: OpenMessages, versions: Iterable[Version], *, merged: bool
) -> list[str]:
    """Return sentences to show above a list of versions, on messages in quarantine.

    These messages have a higher version number than all `versions` of their document, or no
    readable number.
    """
    highest: dict[tuple[str, str], int] = {}
    for version in versions:
        document = version.entity.name, version.id
        highest[document] = max(version.version, highest.get(document, 0))
    newer = [
        message
        for message in messages.messages
        if message.version is None
        or message.version > highest.get((message.entity, message.id), -1)
    ]
    return HTML.describe_first_messages(
        newer,
        lambda message: HTML.describe_newer_message(message, with_document=merged),
        has_more=messages.has_more,
    )


def describe_by_version(messages: OpenMessages) -> Mapping[tuple[str, str, int], list[str]]:
    """Return sentences on the open messages, by the kind, id and version number in the message.

    If a version with the same kind, id and number is stored, its card shows the sentences. Messages
    without a readable version number are left out.
    """
    sentences_by_version: dict[tuple[str, str, int], list[str]] = {}
    for message in messages.messages:
        if message.version is not None:
            sentences = sentences_by_version.setdefault(
                (message.entity, message.id, message.version), []
            )
            sentences += (
                [HTML.describe_repeated_number(message)] if len(sentences) < MAX_SENTENCES else []
            )
    return sentences_by_version


class UnknownDocument(NamedTuple):
    """A document that is not in the store, but that messages in quarantine are about."""

    id: str
    kind: EntityKind
    sentences: list[str]  # on these messages


def describe_unknown_documents(
    reader: HistoryReader, entities: Sequence[EntityKind], ids: Sequence[str]
) -> list[UnknownDocument]:
    """Return the documents with these ids that are not in the store, but in quarantine.

    Documents that the viewer may not know of are left out. Each UnknownDocument has at most
    MAX_SENTENCES sentences. Those of an application include sentences on messages about its
    children.
    """
    documents = [EntityRef(entity, id) for entity in entities for id in ids]
    roots = ids if any(entity.root for entity in entities) else ()
    opened = timeline.fetch_messages_for(reader, OpenMessagesQuestion(entities, documents, roots))
    documents_in_quarantine: list[UnknownDocument] = []
    for entity in entities:
        messages_by_id = timeline.find_quarantined(
            reader, entity, [VersionRange(id, 0, MAX_VERSION) for id in ids]
        )
        for id in ids:
            sentences = [
                text
                for message in list(messages_by_id.get(id, {}).values())[:MAX_SENTENCES]
                for text in gaps.describe_fate(trace.make_quarantined_fate(message))
            ]
            about = opened.list_about(entity.name, id)
            sentences += [
                HTML.describe_message(message) for message in about if message.version is None
            ]
            if entity.root:
                children = opened.list_of_application(entity.name, id)
                child_messages = [message for message in children if message not in about]
                sentences += [
                    HTML.describe_newer_message(message, with_document=True)
                    for message in child_messages
                ]
            if sentences:
                documents_in_quarantine.append(
                    UnknownDocument(id, entity, sentences[:MAX_SENTENCES])
                )
    return documents_in_quarantine


def _describe_nameless(count: int) -> str:
    if not count:
        return ""
    text = ngettext(
        "{n} message in quarantine does not say which document it is about: it may be this one.",
        "{n} messages in quarantine do not say which document they are about: it may be this one.",
        count,
    )
    return text.format(n=format_figure(count))


def _format_count(number: int, has_more: bool) -> str:
    return f"{format_figure(number)}+" if has_more else format_figure(number)
