"""How the rows of a model become documents: `Kind` for a document, `PartOf` for its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from django.db import models

from outbox.errors import WrongChange
from outbox.message import Snapshot
from outbox.writer import Change, is_id

# Values that a snapshot can hold.
_AS_JSON = (NoneType, bool, int, float, Decimal, str, date, time, timedelta, UUID, list, dict)
# Values that are an id when they are written as text.
_IDS = (str, int, UUID, Decimal, date, time)


def columns(instance: models.Model) -> Snapshot:
    """Return the snapshot of all columns; foreign keys as `..._id`."""
    return {field.attname: _column(instance, field) for field in instance._meta.concrete_fields}


def _column(instance: models.Model, field: models.Field[Any, Any]) -> Any:
    value = field.value_from_object(instance)
    # What JSON has no form for, as a file or bytes, is the text that Django's fixtures have for it.
    return value if isinstance(value, _AS_JSON) else field.value_to_string(instance)


@dataclass(frozen=True, slots=True)
class Kind:
    """How the rows of a model are recorded. snapshot: a callable of an instance that gives a
    mapping, or a serializer class. id, parent: names of attributes; the parent is sent as
    productInstanceId. A UUID is sent as its 32 digits."""

    entity: str
    snapshot: Callable[[Any], Any] = columns
    id: str = "pk"
    parent: str | None = None

    def change(self, instance: models.Model, *, deleted: bool = False) -> Change:
        """Return the change after which the document is as this instance, or is deleted.

        Raises:
            WrongChange: the id or the parent is not an id.
        """
        try:
            return Change(
                self.entity,
                self._name(instance, self.id),
                None if deleted else self._data(instance),
                self._parent(instance),
                deleted,
            )
        except Exception as error:
            label = instance._meta.label
            error.add_note(f"outbox: while it recorded {label} with the primary key {instance.pk}")
            raise

    def deletion(self, instance: models.Model) -> Change | None:
        """Return the deletion of the instance's document, or None if the instance has no id that
        a document can have: then it was never recorded."""
        value = getattr(instance, self.id)
        if not isinstance(value, _IDS) or not is_id(_text(value)):
            return None
        return self.change(instance, deleted=True)

    def _parent(self, instance: models.Model) -> str | None:
        if self.parent is None or getattr(instance, self.parent) is None:
            return None
        return self._name(instance, self.parent)

    def _name(self, instance: models.Model, attribute: str) -> str:
        value = getattr(instance, attribute)
        if not isinstance(value, _IDS):
            raise WrongChange(
                f"{instance._meta.label}.{attribute} must be a text or a number,"
                f" not {type(value).__name__}: it names a document of {self.entity!r}"
            )
        return _text(value)

    def _data(self, instance: models.Model) -> Any:
        taken = self.snapshot(instance)
        return taken if isinstance(taken, Mapping) else getattr(taken, "data", taken)


@dataclass(frozen=True, slots=True)
class PartOf:
    """The rows of a model are parts of a document: a change of one is a change of the document.
    whole: name of the foreign key to the model of the document, which is Recorded too. A row whose
    foreign key is null is not a part of any document."""

    whole: str


def _text(value: object) -> str:
    return value.hex if isinstance(value, UUID) else str(value)
