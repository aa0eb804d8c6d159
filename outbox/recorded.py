"""Models whose changes are recorded: the mixin, and its queryset for changes of many rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as default
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from types import NoneType
from typing import Any, ClassVar, TypeVar, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from django.apps import apps
from django.db import connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.signals import post_delete, pre_delete

from outbox.errors import OutboxError
from outbox.message import Snapshot
from outbox.writer import Change, record_many

# Rows that are read and recorded at a time.
_ROWS = 500

# Values that a snapshot can hold.
_AS_JSON = (NoneType, bool, int, float, Decimal, str, date, time, timedelta, UUID, list, dict)

Row = TypeVar("Row", bound=models.Model)


def columns(instance: models.Model) -> Snapshot:
    """The snapshot of all columns; foreign keys as `..._id`."""
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
        """The change after which the document is as this instance, or is deleted."""
        parent = None if self.parent is None else getattr(instance, self.parent)
        return Change(
            self.entity,
            _name(getattr(instance, self.id)),
            None if deleted else self._data(instance),
            None if parent is None else _name(parent),
            deleted,
        )

    def _data(self, instance: models.Model) -> Any:
        taken = self.snapshot(instance)
        return taken if isinstance(taken, Mapping) else getattr(taken, "data", taken)


@dataclass(frozen=True, slots=True)
class PartOf:
    """The rows of a model are parts of a document: a change of one is a change of the document.
    whole: name of the foreign key to the model of the document, which is Recorded too."""

    whole: str


def _name(value: object) -> str:
    return value.hex if isinstance(value, UUID) else str(value)


@dataclass(slots=True)
class _Block:
    """What a block of as_one() has to record at its end."""

    rows: dict[type[models.Model], dict[Any, None]] = default(default_factory=dict)
    deleted: dict[type[models.Model], dict[Any, Change]] = default(default_factory=dict)


# By connection, not by context: a thread with a copy of our context has a transaction of its own.
_blocks: WeakKeyDictionary[BaseDatabaseWrapper, _Block] = WeakKeyDictionary()


@contextmanager
def as_one(using: str | None = None) -> Iterator[None]:
    """A transaction whose changes of a document are one version, recorded at the end of the block;
    also usable as a decorator. A block inside of another one is a part of it."""
    alias = using or router.db_for_write(apps.get_model("outbox", "Document"))
    with transaction.atomic(alias):
        connection = connections[alias]
        if connection in _blocks:
            yield
            return
        block = _blocks[connection] = _Block()
        try:
            yield
        finally:
            del _blocks[connection]
        if not connection.needs_rollback:
            _record(block, alias)


def _record(block: _Block, using: str) -> None:
    """Rows that are there again are not deleted: a savepoint was rolled back."""
    deleted = {
        change.key: change
        for model, changes in block.deleted.items()
        for key, change in changes.items()
        if key not in _there(model, changes, using)
    }
    record_many(deleted.values(), using=using)
    for model, keys in block.rows.items():
        record_rows(model, keys, using)


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
        """As Django's, which calls update()."""
        with as_one(self._written()):
            return super().bulk_update(tuple(objs), fields, batch_size)

    def update(self, **values: Any) -> int:
        """As Django's. Locks the rows first, so that it records exactly those that it changes."""
        with transaction.atomic(self._written()):
            keys = list(self._locked().values_list("pk", flat=True))
            with _changing(self.model, keys, self._written()):
                changed = super(RecordedQuerySet, self.filter(pk__in=keys)).update(**values)
                record_rows(self.model, keys, self._written())
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        """As Django's; rows that it deletes by cascade are recorded, too."""
        with as_one(self._written()):
            return super().delete()

    # A manager made of this queryset must not have these, like Django's.
    update.alters_data = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _locked(self) -> models.QuerySet[Row]:
        """The rows, locked as UPDATE locks them: other rows may refer to them meanwhile."""
        found: models.QuerySet[Row] = self.using(self._written()).order_by()
        if found.query.distinct or found.query.group_by is not None:
            # PostgreSQL locks no rows of a query that joins several into one.
            rows = self.model._base_manager.using(self._written())
            found = rows.filter(pk__in=found.values("pk"))
        return found.order_by("pk").select_for_update(of=("self",), no_key=True)

    def _written(self) -> str:
        self._for_write = True
        return self.db


class Recorded(models.Model):
    """A model whose every change is a version of a document; `recorded_as` says how. Changes
    without save() or the queryset (many-to-many, SQL) are recorded by a call of record()."""

    recorded_as: ClassVar[Kind | PartOf]

    objects = RecordedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """As Django's, and records the row, in one transaction."""
        using = options.get("using") or router.db_for_write(type(self), instance=self)
        with _changing(type(self), [self.pk], using):
            super().save(*args, **options)
            self.record(using)

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        """As Django's; what it deletes by cascade is recorded in the same transaction."""
        using = options.get("using") or router.db_for_write(type(self), instance=self)
        with as_one(using):
            return super().delete(*args, **options)

    def record(self, using: str | None = None) -> None:
        """Record the row as it is in the database now. Needs a transaction."""
        alias = using or router.db_for_write(type(self), instance=self)
        record_rows(type(self), [self.pk], alias)


def record_rows(model: type[models.Model], keys: Collection[Any], using: str) -> None:
    """Record rows by their primary keys, or the documents that they are parts of."""
    kind: Kind | PartOf = model.recorded_as  # type: ignore[attr-defined]
    if isinstance(kind, PartOf):
        record_rows(whole_of(model, kind), _wholes(model, kind, keys, using), using)
        return
    block = _blocks.get(connections[using])
    if block is not None:
        block.rows.setdefault(model, {}).update(dict.fromkeys(keys))
        return
    ordered = sorted(set(keys))
    for at in range(0, len(ordered), _ROWS):
        # Locked: of two transactions the later one has seen the other's change, also of parts.
        part = ordered[at : at + _ROWS]
        rows = model._base_manager.using(using).filter(pk__in=part).order_by("pk")
        record_many([kind.change(row) for row in rows.select_for_update(no_key=True)], using=using)


def record_deleted(model: type[models.Model], key: Any, change: Change, using: str) -> None:
    """Record the deletion of a row by its primary key, at the end of the block if there is one."""
    block = _blocks.get(connections[using])
    if block is None:
        record_many([change], using=using)
    else:
        block.deleted.setdefault(model, {})[key] = change


@contextmanager
def _changing(model: type[models.Model], keys: Collection[Any], using: str) -> Iterator[None]:
    """A transaction in which these rows change; of parts that move both documents do."""
    kind: Kind | PartOf = model.recorded_as  # type: ignore[attr-defined]
    if not isinstance(kind, PartOf):
        with transaction.atomic(using):
            yield
        return
    with as_one(using):
        record_rows(model, [key for key in keys if key is not None], using)
        yield


def _there(model: type[models.Model], keys: Collection[Any], using: str) -> set[Any]:
    rows = model._base_manager.using(using)
    return set(rows.filter(pk__in=keys).values_list("pk", flat=True))


def whole_of(model: type[models.Model], kind: PartOf) -> type[models.Model]:
    """The model of the document that rows of this model are parts of."""
    return cast(type[models.Model], model._meta.get_field(kind.whole).related_model)


def _wholes(
    model: type[models.Model], kind: PartOf, keys: Collection[Any], using: str
) -> list[Any]:
    """The primary keys of the documents that these rows are parts of now."""
    name = f"{kind.whole}__pk"
    rows = model._base_manager.using(using).filter(pk__in=keys)
    return list(rows.order_by(name).values_list(name, flat=True).distinct())


# What is to be recorded once the row is deleted; an attribute of its instance.
_LATER = "_outbox_later"
# With these no row that refers to a deleted one is left, or Django changes none.
_CHANGE_NOTHING = (models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING)


def connect() -> None:
    """Have deletions recorded that concern a recorded model."""
    for model in apps.get_models():
        if issubclass(model, Recorded):
            _connect(model, "itself", _before)
            for field, target in _changed_with(model):
                _connect(target, f"{model._meta.label}.{field.name}", partial(_left, model, field))


def _connect(sender: type[models.Model], name: str, before: Callable[..., None]) -> None:
    pre_delete.connect(before, sender, weak=False, dispatch_uid=f"outbox {name}")
    post_delete.connect(_after, sender, dispatch_uid="outbox")


def _changed_with(
    model: type[models.Model],
) -> Iterator[tuple[models.Field[Any, Any], type[models.Model]]]:
    """The foreign keys that Django changes when it deletes a row of the other model, as
    SET_NULL."""
    for field in model._meta.concrete_fields:
        relation = field.remote_field
        if relation is not None and relation.on_delete not in _CHANGE_NOTHING:
            for target in apps.get_models():
                if target._meta.concrete_model is relation.model._meta.concrete_model:
                    yield field, target


def _before(instance: models.Model, using: str, origin: object = None, **_: Any) -> None:
    """What the row is known by, as long as the database has it."""
    model: type[models.Model] = type(instance)
    row: models.Model | None = instance
    if origin is instance:
        # It may have been changed without save().
        row = model._base_manager.using(using).filter(pk=instance.pk).first()
    if row is None:
        return
    kind: Kind | PartOf = model.recorded_as  # type: ignore[attr-defined]
    if isinstance(kind, PartOf):
        whole = getattr(row, f"{kind.whole}_id")
        _later(instance, partial(record_rows, whole_of(model, kind), [whole], using))
    else:
        change = kind.change(row, deleted=True)
        _later(instance, partial(record_deleted, model, instance.pk, change, using))


def _left(
    model: type[models.Model],
    field: models.Field[Any, Any],
    instance: models.Model,
    using: str,
    **_: Any,
) -> None:
    """The rows that refer to the instance are there afterwards, and refer to another or to none."""
    rows = model._base_manager.using(using).filter(**{field.name: instance})
    keys = list(rows.values_list("pk", flat=True))
    _later(instance, partial(record_rows, model, keys, using))


def _later(instance: models.Model, task: Callable[[], None]) -> None:
    instance.__dict__.setdefault(_LATER, []).append(task)


def _after(instance: models.Model, **_: Any) -> None:
    for task in instance.__dict__.pop(_LATER, ()):
        task()


class OneVersion:
    """A mixin before ModelAdmin: what a form with inlines changes is one version."""

    model: Any

    def changeform_view(self, *args: Any, **options: Any) -> Any:
        """As Django's, in one block."""
        with as_one(router.db_for_write(self.model)):
            return super().changeform_view(*args, **options)  # type: ignore[misc]
