"""Debezium's change events as JSON, with and without the wrapper of `schema` and `payload`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.kinds import Envelope as Declared
from history.record import MAX_VERSION
from ingest.source.envelope import Envelope, EnvelopeError, Name, WithoutValue
from ingest.source.forms.fields import Fields, Lookup, Value, named
from ingest.source.message import Message

_DELETE: Final = "DELETE"
_NULL: Final = b"null"
# In the place of a large value that an UPDATE did not change, and that PostgreSQL did not log.
_UNAVAILABLE: Final = b'"__debezium_unavailable_value"'
# Of the event, where the row says nothing of it.
_OF_SOURCE: Final = {"updatedAt": "/ts_ms", "clientId": "/name"}


class _Event(msgspec.Struct, gc=False):
    op: str | None = None
    before: Raw | UnsetType = UNSET
    after: Raw | UnsetType = UNSET
    source: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET


_DECODER: Final = msgspec.json.Decoder(_Event)


class Debezium:
    """ingest.source.envelope.Reader. The pointers are into the row.

    A DELETE has the row as it was before, and the number of the row's version and one: the row is
    gone, so nothing could increase it. A tombstone, which follows a DELETE for log compaction,
    says nothing new.
    """

    key_is_id = False  # it is an object

    def __init__(self, declared: Declared) -> None:
        of_row = dict(declared.places)
        of_source = {name: at for name, at in _OF_SOURCE.items() if name not in of_row}
        if declared.client is not None:
            of_source.pop("clientId", None)
        unit = "ms" if "updatedAt" in of_source else declared.time_unit
        self._fields = Fields(replace(declared, time_unit=unit))
        at_source = {name: f"/source{at}" for name, at in of_source.items()}
        self.pointers: Mapping[str, str] = {**of_row, **at_source}
        self._of_row, self._of_source = Lookup(of_row), Lookup(of_source)

    def without_value(self, _: Message) -> WithoutValue:
        return WithoutValue.REPEATED

    def read(self, message: Message) -> Envelope:
        event = _event(message)
        change = self._fields.change(event.op)
        row = self._row(event, change)
        if _UNAVAILABLE in bytes(row):
            raise EnvelopeError(
                "bad_data",
                "the row lacks a large value that did not change; set REPLICA IDENTITY FULL on its "
                "table",
            )
        values = self._of_row(row)
        if isinstance(event.source, Raw) and bytes(event.source) != _NULL:
            values |= self._of_source(event.source)
        envelope = self._fields.envelope(values, row)
        envelope.type = change
        if change == _DELETE:
            if envelope.version == MAX_VERSION:
                raise EnvelopeError("bad_field", "the version of the deletion is out of range")
            envelope.version += 1
        return envelope

    def name(self, message: Message) -> Name:
        event = _event(message)
        change = self._fields.change(event.op)
        values: dict[str, Value] = self._of_row(self._row(event, change))
        id, version = named(values)
        digits = bytes(version) if isinstance(version, Raw) else b""
        # No more of them than a version can have: Python makes no number of thousands.
        if change == _DELETE and digits.isdigit() and len(digits) <= len(str(MAX_VERSION)):
            version = Raw(str(int(digits) + 1).encode())
        return id, version

    def _row(self, event: _Event, change: str) -> Raw:
        side = "before" if change == _DELETE else "after"
        row = event.before if change == _DELETE else event.after
        if isinstance(row, Raw) and bytes(row).startswith(b"{"):
            return row
        hint = "; set REPLICA IDENTITY FULL on its table" if change == _DELETE else ""
        raise EnvelopeError("bad_data", f"`{side}` is missing or no object; it has the row{hint}")


def _event(message: Message) -> _Event:
    event = _DECODER.decode(message.value or b"")
    if event.op is None and isinstance(event.payload, Raw):
        return _DECODER.decode(event.payload)
    return event
