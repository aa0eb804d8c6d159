"""Decodes one message into a record, or into the reason why it is bad.

Begin with `decode_message`. The record has the bytes of the snapshot as they are in the message.
Only the syntax of the snapshot is checked, and its search keys are read. No function here reads a
clock, a file or a database.
"""

import re
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from history.documents import jsonb
from history.documents.exactjson import is_deeper
from history.documents.jsonb import may_have_nul, to_store
from history.documents.record import ChangeType, Record
from history.kinds.entities import BY_TOPIC, EntityKind
from history.store.days.window import Window
from history.store.search_index.keys import LOOKUPS, UNREADABLE, DecodedValues
from ingest.messages.envelope import (
    EmptyValueMeaning,
    Envelope,
    EnvelopeParser,
    EnvelopeParsers,
    explain_syntax_error,
    explain_wrong_fields,
)
from ingest.messages.explanations import Code, Explanation
from ingest.messages.forms import DECLARED_PARSERS
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import Reason, RejectedMessageError, RepeatedMessageError

MAX_NESTING = 500


class ExpiredVersionError(Exception):
    """Raised for a version that is older than the window.

    The caller stores the version nevertheless if its day has a partition of the table.
    """

    def __init__(self, record: Record) -> None:
        super().__init__("older than the window")
        self.record = record


class DecodedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message with its record, or with the reason why it is bad.

    A message that only repeats the message before it has neither a record nor a reason. An example
    is the tombstone that Debezium sends after a deletion.
    """

    message: KafkaMessage
    size: int  # bytes of key, value and headers
    record: Record | None = None  # None if the message is bad or repeated
    # the values of the record's search keys, if they were looked up
    search_keys: DecodedValues | None = None
    is_expired: bool = False  # the record is older than the window
    reason: Reason | None = None  # why the message is bad; None if it is not
    explanation: Explanation | None = None  # explains the reason; None if there is no reason


_DECODER = msgspec.json.Decoder(Envelope)
_TYPES: dict[int | str | None, int] = {
    spelling: int(change_type)
    for change_type in ChangeType
    for spelling in (change_type.name, int(change_type), str(int(change_type)))
}
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?",
    re.ASCII,
)
_BRACE, _BACKSLASH, _SPACE = ord("{"), ord("\\"), ord(" ")
_DATA, _NO_DATA = b'"data":', b'"data":null}'
# The length of the shortest envelope with all required fields, without its data.
_SHORTEST = len('{"id":"1","version":1,"type":1,"updatedAt":"2026-01-01","clientId":"1"')
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - subtracted from times without an offset
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_FRACTION = 9  # digits of a second's fraction


class Decoder:
    """Decodes messages.

    Args:
        parsers: The parsers of declared envelopes, by topic.
    """

    def __init__(self, parsers: EnvelopeParsers = DECLARED_PARSERS) -> None:
        self._parsers = parsers

    def __call__(self, message: KafkaMessage, window: Window) -> Record:
        """Return the record of a message.

        Raises:
            RejectedMessageError: The message breaks rules of the contract. The error names the
                first of them.
            RepeatedMessageError: The message repeats an earlier message, and brings no version.
            ExpiredVersionError: The message is good, but older than the window.
        """
        return self.decode_with_keys(message, window)[0]

    def decode_with_keys(
        self, message: KafkaMessage, window: Window
    ) -> tuple[Record, DecodedValues | None]:
        """Return the record, and the values of its search keys for `NewSearchKeys.add_record`.

        The values are looked up in the same pass as the envelope, if possible. They are None if the
        kind has no search keys. They are also None if the topic has a declared envelope, or if the
        message does not end with its snapshot: `add_record` then looks them up.

        Raises:
            RejectedMessageError, RepeatedMessageError, ExpiredVersionError: See `__call__`.
        """
        topic, value = message.topic, message.value
        entity = BY_TOPIC.get(topic)
        if entity is None:
            raise RejectedMessageError(
                Reason.UNKNOWN_TOPIC, Explanation(Code.UNDECLARED_TOPIC, topic=topic)
            )
        parser = self._parsers.get(topic)
        if not value:
            value = _check_empty_value(message, parser)
        parts = _split_message(value, entity) if parser is None else None
        if parts is None:
            envelope, search_keys = _decode_envelope(message, value, parser), None
            data = None if envelope.data is UNSET else memoryview(envelope.data)
        else:
            envelope, data, search_keys = parts
        change_type = _TYPES.get(envelope.rev_type if envelope.type is None else envelope.type)
        if change_type is None:
            raise _reject_field(Reason.BAD_TYPE, Explanation(Code.NO_TYPE, field="type"), parser)
        application = None
        if entity.parent is not None:
            application = envelope.product_instance_id
            if not application:
                raise RejectedMessageError(
                    Reason.NO_APPLICATION, Explanation(Code.NO_APPLICATION, field=entity.parent)
                )
        updated_at = parse_time(envelope.updated_at, parser)
        has_nul = may_have_nul(value)
        record = Record(
            entity.name,
            envelope.id,
            envelope.version,
            change_type,
            updated_at,
            envelope.client_id,
            envelope.author or None,
            application,
            _check_snapshot(data, change_type, value, has_nul, parser),
        )
        if has_nul and "\0" in f"{record.id}{record.client_id}{application}{record.author}":
            raise RejectedMessageError(Reason.BAD_TEXT, Explanation(Code.NUL_CHARACTER, field="id"))
        if updated_at >= window.end:
            day = str(window.newest)
            explanation = Explanation(Code.AFTER_LAST_DAY, field="updatedAt", day=day)
            raise _reject_field(Reason.FUTURE, explanation, parser)
        if updated_at < window.start:
            raise ExpiredVersionError(record)
        return record, search_keys


# Decodes messages with the envelopes that this installation declares.
decode = Decoder()


def decode_message(message: KafkaMessage, window: Window) -> DecodedMessage:
    """Decode a message. For a bad message, return the reason instead of raising an error.

    Args:
        window: The days that are kept.
    """
    size = message.size
    try:
        record, search_keys = decode.decode_with_keys(message, window)
    except RepeatedMessageError:
        return DecodedMessage(message, size)
    except RejectedMessageError as error:
        return DecodedMessage(message, size, reason=error.reason, explanation=error.explanation)
    except ExpiredVersionError as error:
        return DecodedMessage(message, size, error.record, is_expired=True)
    return DecodedMessage(message, size, record, search_keys)


def parse_time(text: str, parser: EnvelopeParser | None = None) -> int:
    """Return an ISO 8601 time in whole microseconds since the epoch, rounded down.

    A time without an offset is UTC.

    Args:
        parser: The parser of the declared envelope; None for the contract's envelope.

    Raises:
        RejectedMessageError: The text is not a time, or the time does not exist.
    """
    # Nearly all times look like 2025-07-03T11:42:48.510186035, with or without Z. For such a text,
    # fromisoformat() is a sufficient check. Other texts must also match the regular expression.
    separators = text[4:20:3]
    if separators == "--T::.":
        fraction = text[20:].removesuffix("Z")
        is_usual = fraction.isdigit() and len(fraction) <= LONGEST_FRACTION and text.isascii()
    else:
        is_usual = separators == "--T::"
    if not is_usual and _TIME.fullmatch(text) is None:
        explanation = Explanation(Code.NOT_A_TIME, field="updatedAt")
        raise _reject_field(Reason.BAD_TIME, explanation, parser)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        code = Code.NOT_A_TIME if _TIME.fullmatch(text) is None else Code.NO_SUCH_TIME
        explanation = Explanation(code, field="updatedAt")
        raise _reject_field(Reason.BAD_TIME, explanation, parser) from None
    elapsed = parsed - (_EPOCH if parsed.tzinfo is None else _EPOCH_UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _split_message(
    value: bytes, entity: EntityKind
) -> tuple[Envelope, memoryview, DecodedValues] | None:
    """Return the envelope, the snapshot and the values of the search keys, read in one pass.

    Returns:
        None if one pass is not possible, because the message does not end with its snapshot, or its
        kind has no search keys.
    """
    lookup = LOOKUPS[entity.name]
    name_start = value.find(_DATA, _SHORTEST)
    if (
        lookup is None
        or name_start < 0
        or value[name_start - 1] == _BACKSLASH
        or value[-2:] != b"}}"
    ):
        return None
    start = name_start + len(_DATA)
    if value[start] == _SPACE:
        start += 1
    if value[start] != _BRACE:
        return None
    data = memoryview(value)[start:-1]
    try:
        return _DECODER.decode(value[:name_start] + _NO_DATA), data, lookup.decode(data)
    except UNREADABLE:
        return None


def _reject_field(
    reason: Reason, explanation: Explanation, parser: EnvelopeParser | None
) -> RejectedMessageError:
    """Return the error for a wrong field.

    If the topic has a declared envelope, the error names the field by its JSON pointer there.
    """
    if parser is not None:
        explanation = explanation.name_field(parser.pointers)
    return RejectedMessageError(reason, explanation)


def _check_empty_value(message: KafkaMessage, parser: EnvelopeParser | None) -> bytes:
    """Return b"" if a message without a value has all fields in its headers.

    Raises:
        RepeatedMessageError: The message is a tombstone. The deletion message before it has
            brought the version already.
        RejectedMessageError: The message should have a value.
    """
    meaning = EmptyValueMeaning.BAD if parser is None else parser.get_empty_value_meaning(message)
    if meaning is EmptyValueMeaning.READ:
        return b""
    error = RepeatedMessageError if meaning is EmptyValueMeaning.REPEATED else RejectedMessageError
    raise error(Reason.EMPTY, Explanation(Code.NO_VALUE))


def _decode_envelope(
    message: KafkaMessage, value: bytes, parser: EnvelopeParser | None
) -> Envelope:
    try:
        return _DECODER.decode(value) if parser is None else parser.parse_envelope(message)
    except msgspec.ValidationError:
        unclear = Explanation(Code.UNCLEAR_FIELD)
        explanation = explain_wrong_fields(value, None) if parser is None else unclear
        raise RejectedMessageError(Reason.BAD_FIELD, explanation) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RejectedMessageError(Reason.NOT_JSON, explain_syntax_error(error, value)) from None
    except RecursionError:
        raise RejectedMessageError(
            Reason.TOO_DEEP, Explanation(Code.TOO_DEEP, n=MAX_NESTING)
        ) from None


def _check_snapshot(
    data: memoryview | None,
    change_type: int,
    message: bytes,
    has_nul: bool,
    parser: EnvelopeParser | None,
) -> bytes | memoryview:
    """Return the snapshot as it will be stored: unchanged, unless it has NUL characters.

    Args:
        data: The snapshot in the message; None if it is missing.
        message: The value of the whole message.
        has_nul: Whether the message has a NUL character, which PostgreSQL cannot store.

    Raises:
        RejectedMessageError: The snapshot is missing, not an object, too deep or too large.
    """
    if data is not None:
        if data[0] == _BRACE:
            if _may_be_deep(message) and is_deeper(bytes(data), MAX_NESTING):
                raise RejectedMessageError(
                    Reason.TOO_DEEP, Explanation(Code.TOO_DEEP, n=MAX_NESTING)
                )
            digits = jsonb.count_excess_digits(data)
            if digits:
                explanation = Explanation(Code.TOO_MANY_DIGITS, n=digits, most=jsonb.MAX_DIGITS)
                raise RejectedMessageError(Reason.TOO_LARGE, explanation)
            return to_store(bytes(data)) if has_nul else data
        if change_type == ChangeType.DELETE and bytes(data) == b"null":
            return data
    raise _reject_field(Reason.BAD_DATA, Explanation(Code.NO_DATA, field="data"), parser)


def _may_be_deep(message: bytes) -> bool:
    """Return False if a message has too few brackets to be nested deeper than MAX_NESTING.

    This only counts brackets, because it is called for every message.
    """
    return (
        len(message) > 2 * MAX_NESTING and message.count(b"{") + message.count(b"[") > MAX_NESTING
    )
