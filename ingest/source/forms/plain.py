"""Envelopes of any JSON: the fields are where the declaration says."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Raw

from history.kinds import Envelope as Declared
from ingest.source.envelope import Envelope, Name, WithoutValue
from ingest.source.forms.fields import Fields, Lookup, named
from ingest.source.message import Message


class Plain:
    """ingest.source.envelope.Reader."""

    key_is_id = True

    def __init__(self, declared: Declared) -> None:
        self._fields = Fields(declared)
        self.pointers: Mapping[str, str] = self._fields.pointers
        self._lookup = Lookup(self.pointers)

    def without_value(self, _: Message) -> WithoutValue:
        return WithoutValue.BAD

    def read(self, message: Message) -> Envelope:
        values = self._lookup(message.value or b"")
        data = values.get("data", UNSET)
        return self._fields.envelope(values, data if isinstance(data, Raw) else UNSET)

    def name(self, message: Message) -> Name:
        return named(self._lookup(message.value or b""))
