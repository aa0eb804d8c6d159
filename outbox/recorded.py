"""Models whose changes are recorded: the mixin, and its queryset for changes of many rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.db import models, router, transaction
from django.db.models.signals import post_delete

from outbox.errors import OutboxError
from outbox.snapshot import Snapshot
from outbox.writer import Change, record_many

# Rows that are read and recorded at a time.
_ROWS = 500

Row = TypeVar("Row", bound=models.Model)


def columns(instance: models.Model) -> Snapshot:
    """The snapshot of all columns; foreign keys as `..._id`."""
    return {
        field.attname: field.value_from_object(instance) for field in instance._meta.concrete_fields
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """How the rows of a model are recorded.

    snapshot: a callable of an instance that gives a mapping, or a serializer class (what it makes
    of an instance has `.data`). id, parent: names of attributes; the parent is sent as
    productInstanceId.
    """

    entity: str
    snapshot: Callable[[Any], Any] = columns
    id: str = "pk"
    parent: str | None = None

    def change(self, instance: models.Model, *, deleted: bool = False) -> Change:
        """The change after which the document is as this instance, or is deleted."""
        parent = None if self.parent is None else getattr(instance, self.parent)
        return Change(
            self.entity,
            str(getattr(instance, self.id)),
            None if deleted else self._data(instance),
            None if parent is None else str(parent),
            deleted,
        )

    def _data(self, instance: models.Model) -> Any:
        taken = self.snapshot(instance)
        return taken if isinstance(taken, Mapping) else getattr(taken, "data", taken)


class RecordedQuerySet(models.QuerySet[Row]):
    """Records what changes many rows at once, in the transaction of the change."""

    def bulk_create(  # type: ignore[override]
        self,
        objs: Iterable[Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        **more: Any,
    ) -> list[Row]:
        """As Django's. Raises OutboxError for ignore_conflicts: nobody knows which rows are new."""
        if ignore_conflicts:
            raise OutboxError("bulk_create(ignore_conflicts=True) does not say what it created")
        with transaction.atomic(self._written()):
            made = super().bulk_create(objs, batch_size, **more)
            record_rows(self.model, [row.pk for row in made], self._written())
        return made

    def bulk_update(
        self, objs: Iterable[Row], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """As Django's."""
        rows = tuple(objs)
        with transaction.atomic(self._written()):
            changed = super().bulk_update(rows, fields, batch_size)
            record_rows(self.model, [row.pk for row in rows], self._written())
        return changed

    def update(self, **values: Any) -> int:
        """As Django's. Locks the rows first, so that it records exactly those that it changes."""
        with transaction.atomic(self._written()):
            found = self.using(self._written()).order_by("pk").select_for_update(of=("self",))
            keys = list(found.values_list("pk", flat=True))
            changed = super(RecordedQuerySet, self.filter(pk__in=keys)).update(**values)
            record_rows(self.model, keys, self._written())
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        """As Django's; rows that it deletes by cascade are recorded, too."""
        with transaction.atomic(self._written()), _deletions(self._written()):
            return super().delete()

    # A manager made of this queryset must not have these, like Django's.
    update.alters_data = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _written(self) -> str:
        self._for_write = True
        return self.db


class Recorded(models.Model):
    """A model whose every change is a version of a document.

    `recorded_as` says how. Changes that Django makes without save() or the queryset, as of a
    many-to-many relation or by SQL, are recorded by a call of record().
    """

    recorded_as: ClassVar[Kind]

    objects = RecordedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """As Django's, and records the row, in one transaction."""
        using = options.get("using") or router.db_for_write(type(self), instance=self)
        with transaction.atomic(using):
            super().save(*args, **options)
            self.record(using)

    def record(self, using: str | None = None) -> None:
        """Record the row as it is in the database now. Needs a transaction."""
        alias = using or router.db_for_write(type(self), instance=self)
        record_rows(type(self), [self.pk], alias)


def record_rows(model: type[models.Model], keys: Collection[Any], using: str) -> None:
    """Record rows by their primary keys. They are read again: the snapshot has what the database
    has, not what an instance was given."""
    kind: Kind = model.recorded_as  # type: ignore[attr-defined]
    for part in _parts(list(keys)):
        rows = model._base_manager.using(using).filter(pk__in=part).order_by("pk")
        record_many([kind.change(row) for row in rows], using=using)


def connect() -> None:
    """Have deletions of all recorded models recorded. Django tells of each row, whoever deletes
    it."""
    for model in apps.get_models():
        if issubclass(model, Recorded):
            uid = f"outbox.recorded.{model._meta.label}"
            post_delete.connect(_record_deletion, sender=model, dispatch_uid=uid)


# What is deleted in a block, to be recorded at its end.
_collected: ContextVar[list[Change] | None] = ContextVar("outbox_deleted", default=None)


@contextmanager
def _deletions(using: str) -> Iterator[None]:
    changes: list[Change] = []
    token = _collected.set(changes)
    try:
        yield
    finally:
        _collected.reset(token)
    record_many(changes, using=using)


def _record_deletion(instance: models.Model, using: str, **_: Any) -> None:
    kind: Kind = instance.recorded_as  # type: ignore[attr-defined]
    change, collected = kind.change(instance, deleted=True), _collected.get()
    if collected is None:
        record_many([change], using=using)
    else:
        collected.append(change)


def _parts(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (keys[at : at + _ROWS] for at in range(0, len(keys), _ROWS))
