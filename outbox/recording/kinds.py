"""Declarations that each row of a model is a document (`Kind`) or a part of one (`PartOf`)."""

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
from outbox.recording.message import Snapshot
from outbox.recording.writer import Change, is_id

# The types of values that a snapshot can hold unchanged.
_JSON_TYPES = (NoneType, bool, int, float, Decimal, str, date, time, timedelta, UUID, list, dict)
# The types of values that can be an id. An id is sent as text.
_ID_TYPES = (str, int, UUID, Decimal, date, time)


def columns(instance: models.Model) -> Snapshot:
    """Return a snapshot of all columns. A foreign key appears as `..._id`."""
    return {
        field.attname: _read_column(instance, field) for field in instance._meta.concrete_fields
    }


def _read_column(instance: models.Model, field: models.Field[Any, Any]) -> Any:
    value = field.value_from_object(instance)
    # A value that JSON cannot hold, such as a file, becomes the text that Django's fixtures use.
    return value if isinstance(value, _JSON_TYPES) else field.value_to_string(instance)


@dataclass(frozen=True, slots=True)
class Kind:
    """A declaration of how the rows of a model are recorded as documents.

    Attributes:
        entity: The name of the documents' kind.
        snapshot: A function that returns the snapshot of an instance as a mapping, or a serializer
            class.
        id: The attribute with the document's id. A UUID is sent as its 32 digits.
        parent: The attribute with the id of the application, which is sent as
            `productInstanceId`. None: the documents do not belong to an application.
    """

    entity: str
    snapshot: Callable[[Any], Any] = columns
    id: str = "pk"
    parent: str | None = None

    def make_change(self, instance: models.Model, *, deleted: bool = False) -> Change:
        """Return the change that makes the document equal to this instance, or deletes it.

        Raises:
            WrongChange: The id or the parent is not a valid id.
        """
        try:
            return Change(
                self.entity,
                self._read_id(instance, self.id),
                None if deleted else self._take_snapshot(instance),
                self._read_parent(instance),
                deleted,
            )
        except Exception as error:
            label = instance._meta.label
            error.add_note(f"outbox: while it recorded {label} with the primary key {instance.pk}")
            raise

    def make_deletion(self, instance: models.Model) -> Change | None:
        """Return the deletion of the instance's document.

        Returns:
            None if the instance's id is not valid as the id of a document. Such an instance was
            never recorded.
        """
        value = getattr(instance, self.id)
        if not isinstance(value, _ID_TYPES) or not is_id(_format_id(value)):
            return None
        return self.make_change(instance, deleted=True)

    def _read_parent(self, instance: models.Model) -> str | None:
        if self.parent is None or getattr(instance, self.parent) is None:
            return None
        return self._read_id(instance, self.parent)

    def _read_id(self, instance: models.Model, attribute: str) -> str:
        value = getattr(instance, attribute)
        if not isinstance(value, _ID_TYPES):
            raise WrongChange(
                f"{instance._meta.label}.{attribute} must be a text or a number,"
                f" not {type(value).__name__}: it names a document of {self.entity!r}"
            )
        return _format_id(value)

    def _take_snapshot(self, instance: models.Model) -> Any:
        snapshot = self.snapshot(instance)
        return snapshot if isinstance(snapshot, Mapping) else getattr(snapshot, "data", snapshot)


@dataclass(frozen=True, slots=True)
class PartOf:
    """A declaration that a change of a model's row makes a new version of a document.

    The row is a part of the document, for example a line of an order.

    Attributes:
        whole: The name of the foreign key to the model of the document, which must be Recorded too.
            If the foreign key of a row is null, the row does not belong to a document.
    """

    whole: str


def _format_id(value: object) -> str:
    return value.hex if isinstance(value, UUID) else str(value)
