"""The base class of recorded models, and a queryset that records bulk changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, TypeVar

from django.db import connections, models, router
from django.db.models import F, Func, Q
from django.db.models.manager import BaseManager
from django.db.models.signals import class_prepared

from outbox.errors import NotInTransaction, OutboxError
from outbox.recording.kinds import Kind, PartOf, columns
from outbox.recording.recording_block import (
    RecordingBlock,
    as_one,
    convert_known_keys,
    get_concrete_model,
    get_kind,
    open_block,
    select_all_rows,
)

__all__ = ["Kind", "OneVersion", "PartOf", "Recorded", "RecordedQuerySet", "as_one", "columns"]

# How many rows are searched by their unique values at a time.
_CONFLICTS_AT_A_TIME = 100

Row = TypeVar("Row", bound=models.Model)


class RecordedQuerySet(models.QuerySet[Row]):
    """A queryset with bulk methods that record the changes in the same transaction."""

    def bulk_create(
        self,
        objs: Iterable[Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[Row]:
        """Create rows as Django does, and record them.

        Raises:
            OutboxError: `ignore_conflicts` is set: then it is not known which rows are new.
        """
        if ignore_conflicts:
            raise OutboxError(
                "bulk_create(ignore_conflicts=True) cannot be recorded: its new rows are unknown"
            )
        instances = list(objs)
        with open_block(self._choose_write_database()) as block:
            is_upsert = update_conflicts and unique_fields and update_fields
            if is_upsert:
                self._note_conflicts(block, instances, update_fields or (), unique_fields or ())
            created = super().bulk_create(
                instances,
                batch_size=batch_size,
                update_conflicts=update_conflicts,
                update_fields=update_fields,
                unique_fields=unique_fields,
            )
            keys = convert_known_keys(self.model, [row.pk for row in created])
            if is_upsert:
                # If an object came with its own key, Django does not replace it by the key of the
                # existing row.
                keys += self._find_conflicting_keys(instances, unique_fields or ())
            block.note_created(self.model, keys)
        return created

    def bulk_update(
        self, objs: Iterable[Row], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """Update rows as Django does, by calling update(), and record each document once."""
        with open_block(self._choose_write_database()):
            return super().bulk_update(tuple(objs), fields, batch_size)

    def update(self, **values: Any) -> int:
        """Update rows as Django does, and record exactly the updated rows.

        The rows are locked before the update, so that no other transaction changes them meanwhile.

        Raises:
            OutboxError: The primary key gets a value that only the database knows.
        """
        if self.query.is_sliced or self.query.combinator:
            return super().update(**values)  # Django refuses it
        with open_block(self._choose_write_database()) as block:
            keys = self._lock_keys()
            if _can_move(self.model, values):
                block.note_before(self.model, keys)
            changed = super(RecordedQuerySet, self._select_keys(keys)).update(**values)
            block.note_after(self.model, _compute_keys_after(self.model, keys, values))
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete rows as Django does, and record what this deletion and its cascade change."""
        if self.query.is_sliced or self.query.combinator or self.query.distinct_fields:
            return super().delete()  # Django refuses it
        with open_block(self._choose_write_database()) as block:
            keys = self._lock_keys() if self._fields is None else []  # type: ignore[attr-defined]
            block.note_before(self.model, keys)
            leaving = {(get_concrete_model(self.model), key) for key in keys}
            block.leaving |= leaving
            try:
                return super().delete()
            finally:
                block.leaving -= leaving

    def _raw_delete(self, using: str | None) -> int:
        """Delete rows without sending signals, and record the deletions.

        Django calls this method for a fast deletion.
        """
        rows = self.using(using)
        with open_block(rows._choose_write_database()) as block:
            block.note_before(self.model, rows._lock_keys())
            return super()._raw_delete(using)

    # As in Django: a template must not call these methods, and a manager must not have delete().
    update.alters_data = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]
    _raw_delete.alters_data = True  # type: ignore[attr-defined]

    def _lock_keys(self) -> list[Any]:
        """Return the primary keys of the queryset's rows, and lock these rows as UPDATE does.

        With this lock, other transactions can still insert rows that refer to the locked rows.
        """
        rows: models.QuerySet[Row] = self.using(self._choose_write_database()).order_by()
        query = rows.query
        joins = query.distinct or query.group_by is not None or query.where.contains_over_clause
        # PostgreSQL cannot lock the rows of a query that groups or combines rows, and FOR UPDATE OF
        # does not accept the name of a table with its schema.
        is_subquery = joins or '"."' in self.model._meta.db_table
        if is_subquery:
            rows = select_all_rows(self.model, self._choose_write_database()).filter(
                pk__in=rows.values("pk")
            )
        lock_of = () if is_subquery else ("self",)
        locked = rows.order_by("pk").select_for_update(of=lock_of, no_key=True)
        names = [field.attname for field in self.model._meta.pk_fields]
        # Django cannot lock rows in a query that returns a composite key as one value.
        if len(names) > 1:
            return list(dict.fromkeys(locked.values_list(*names)))
        return list(dict.fromkeys(locked.values_list(*names, flat=True)))

    def _select_keys(self, keys: Sequence[Any]) -> RecordedQuerySet[Row]:
        """Return the queryset limited to these rows. There may be any number of keys."""
        return self.using(self._choose_write_database()).filter(_PrimaryKeyIn(self.model, keys))

    def _note_conflicts(
        self,
        block: RecordingBlock,
        objs: Sequence[Row],
        update_fields: Collection[str],
        unique_fields: Collection[str],
    ) -> None:
        """Note the rows that bulk_create() will update."""
        if _can_move(self.model, update_fields):
            # Locked so that no other transaction creates a conflicting row after the query below.
            table = connections[block.using].ops.quote_name(self.model._meta.db_table)
            with connections[block.using].cursor() as cursor:
                cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        block.note_before(self.model, self._find_conflicting_keys(objs, unique_fields))

    def _find_conflicting_keys(
        self, objs: Sequence[Row], unique_fields: Collection[str]
    ) -> list[Any]:
        """Return the primary keys of the rows with which `objs` conflict in `unique_fields`."""
        names = [self.model._meta.pk.name if name == "pk" else name for name in unique_fields]
        fields: list[Any] = [self.model._meta.get_field(name) for name in names]
        nulls_conflict = any(
            getattr(constraint, "nulls_distinct", None) is False
            for constraint in self.model._meta.constraints
        )
        conditions = []
        for row in objs:
            values = {field.name: getattr(row, field.attname) for field in fields}
            for name, value in values.items():
                if hasattr(value, "resolve_expression") and name != self.model._meta.pk.name:
                    raise OutboxError(
                        "bulk_create(update_conflicts=True) cannot be recorded if"
                        f" {self.model._meta.label}.{name} is an expression: the changed rows are"
                        " unknown"
                    )
            if any(hasattr(value, "resolve_expression") for value in values.values()):
                continue  # the database generates the key, so the row is new
            if nulls_conflict or None not in values.values():
                conditions.append(_make_equality(values))
        keys: dict[Any, None] = {}
        rows = select_all_rows(self.model, self._choose_write_database())
        for start in range(0, len(conditions), _CONFLICTS_AT_A_TIME):
            conflicting_rows = rows.filter(
                reduce(or_, conditions[start : start + _CONFLICTS_AT_A_TIME])
            )
            keys.update(dict.fromkeys(conflicting_rows.values_list("pk", flat=True)))
        return list(keys)

    def _choose_write_database(self) -> str:
        self._for_write = True
        return self.db


class _PrimaryKeyIn(Func):
    """The condition that the primary key of a row is in a list of keys.

    The list is passed as one array for each column of the key, because PostgreSQL accepts at most
    65,535 parameters.
    """

    output_field = models.BooleanField()
    conditional = True

    def __init__(self, model: type[models.Model], keys: Sequence[Any]) -> None:
        self._columns = model._meta.pk_fields
        rows = keys if len(self._columns) > 1 else [(key,) for key in keys]
        self._values = [[row[index] for row in rows] for index in range(len(self._columns))]
        super().__init__(*(F(column.attname) for column in self._columns))

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        columns, arrays, parameters = [], [], []
        for source in self.get_source_expressions():
            sql, source_parameters = compiler.compile(source)
            columns.append(sql)
            parameters.extend(source_parameters)
        for column, values in zip(self._columns, self._values, strict=True):
            arrays.append(f"%s::{column.cast_db_type(connection)}[]")
            parameters.append([column.get_db_prep_value(value, connection) for value in values])
        array = f"SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608 - our own names
        return f"({', '.join(columns)}) IN ({array})", parameters


def _make_equality(values: Mapping[str, Any]) -> Q:
    return Q(
        **{
            f"{name}__isnull" if value is None else name: True if value is None else value
            for name, value in values.items()
        }
    )


def _can_move(model: type[models.Model], names: Iterable[str]) -> bool:
    """Return whether changing these fields can make the row belong to another document."""
    meta = model._meta
    kind = get_kind(get_concrete_model(model))
    attribute = kind.whole if isinstance(kind, PartOf) else kind.id
    if attribute == "pk":
        decisive = set(meta.pk_fields)
    else:
        decisive = {
            field for field in meta.concrete_fields if attribute in (field.name, field.attname)
        }
    if not decisive:
        return True  # a property, which may depend on any field
    if any(field.generated for field in decisive):
        return True  # PostgreSQL computes it from other columns
    changed = {meta.pk.name if name == "pk" else name for name in names}
    return any(field.name in changed or field.attname in changed for field in decisive)


def _compute_keys_after(
    model: type[models.Model], keys: Sequence[Any], values: Mapping[str, Any]
) -> Sequence[Any]:
    """Return the primary keys that these rows will have after an update with these values.

    Raises:
        OutboxError: Only the database knows the keys after the update.
    """
    fields = model._meta.pk_fields
    new_parts: dict[int, Any] = {}
    for index, field in enumerate(fields):
        for name in {field.name, field.attname, "pk"} & set(values):
            value = values[name]
            if hasattr(value, "resolve_expression"):
                raise OutboxError(
                    f"update({name}=...) of {model._meta.label} with an expression cannot be"
                    " recorded: the new primary keys are unknown. Update the rows one by one, each"
                    " with a value that is not an expression"
                )
            if isinstance(value, models.Model):
                value = getattr(value, field.target_field.attname)  # type: ignore[attr-defined]
            new_parts[index] = value
    if not new_parts:
        return keys
    rows = keys if len(fields) > 1 else [(key,) for key in keys]
    new_rows = [tuple(new_parts.get(index, part) for index, part in enumerate(row)) for row in rows]
    return convert_known_keys(model, new_rows if len(fields) > 1 else [key for (key,) in new_rows])


class Recorded(models.Model):
    """The base of models that record a version of a document with each change.

    `recorded_as` declares the document. Call record() after changes that Django does not see, such
    as SQL.
    """

    recorded_as: ClassVar[Kind | PartOf]

    objects = RecordedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save_base(
        self,
        raw: bool = False,
        force_insert: Any = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Save the row as Django does, and record it in the same transaction.

        save() calls this method.
        """
        model = type(self)
        alias = using or router.db_for_write(model, instance=self)
        column_names = [
            field.name for field in model._meta.concrete_fields if not field.primary_key
        ]
        changed_names = column_names if update_fields is None else update_fields
        with open_block(alias) as block:
            # A save() without a primary key makes a copy of a row.
            new = self._state.adding or not convert_known_keys(model, [self.pk])
            if not force_insert and (new or _can_move(model, changed_names)):
                block.note_before(model, convert_known_keys(model, [self.pk]))
            super().save_base(
                raw=raw,
                force_insert=force_insert,
                force_update=force_update,
                using=alias,
                update_fields=update_fields,
            )
            keys = convert_known_keys(model, [self.pk])
            (block.note_created if new else block.note_after)(model, keys)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def delete(
        self, using: str | None = None, keep_parents: bool = False
    ) -> tuple[int, dict[str, int]]:
        """Delete the row as Django does, and record this and the cascade in one transaction."""
        with open_block(using or router.db_for_write(type(self), instance=self)):
            return super().delete(using=using, keep_parents=keep_parents)

    delete.alters_data = True  # type: ignore[attr-defined]

    def record(self, using: str | None = None) -> None:
        """Record the row as the database has it now, or its deletion if it no longer exists.

        Raises:
            NotInTransaction: No transaction is open.
            OutboxError: The instance was never saved.
        """
        model = type(self)
        alias = using or router.db_for_write(model, instance=self)
        if not connections[alias].in_atomic_block:
            raise NotInTransaction(
                "record() needs a transaction: call it inside transaction.atomic(), with the change"
            )
        keys = convert_known_keys(model, [self.pk])
        if not keys:
            raise OutboxError(
                f"record() was called for an instance of {model._meta.label} that was never saved"
            )
        with open_block(alias) as block:
            if not select_all_rows(model, alias).filter(pk__in=keys).exists():
                block.note_deleted_earlier(self, keys[0])
            block.note_after(model, keys)


class OneVersion:
    """A mixin for a ModelAdmin, so that all changes of a form with inlines become one version.

    It comes before ModelAdmin in the list of base classes.
    """

    model: Any

    def changeform_view(self, *args: Any, **options: Any) -> Any:
        """Handle the form as Django does, and record its changes of a document as one version."""
        with as_one(router.db_for_write(self.model)):
            return super().changeform_view(*args, **options)  # type: ignore[misc]


def is_recording_all_rows(manager: BaseManager[Any]) -> bool:
    """Return whether a manager hides no rows and records bulk changes such as `update()`."""
    is_unfiltered = type(manager).get_queryset is BaseManager.get_queryset
    return is_unfiltered and issubclass(manager._queryset_class, RecordedQuerySet)  # type: ignore[attr-defined]


def _set_base_manager(sender: type[models.Model], **_: Any) -> None:
    """Make the default manager of a recorded model the base manager too.

    This is done only if the manager hides no rows and records bulk changes. Django makes changes
    such as `order.items.add(item)` through the base manager. Receives the signal class_prepared.
    """
    meta = sender._meta
    if issubclass(sender, Recorded) and not meta.abstract and meta.base_manager_name is None:
        manager = meta.default_manager
        if manager is not None and is_recording_all_rows(manager):
            meta.base_manager_name = manager.name


class_prepared.connect(_set_base_manager, dispatch_uid="outbox")
