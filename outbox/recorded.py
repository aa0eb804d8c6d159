"""Models whose changes are recorded: the mixin, and its queryset for changes of many rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, ClassVar, TypeVar

from django.db import connections, models, router
from django.db.models import F, Func, Q
from django.db.models.manager import BaseManager
from django.db.models.signals import class_prepared

from outbox.block import (
    Block,
    as_one,
    concrete,
    kind_of,
    known_keys,
    open_block,
    rows_of,
)
from outbox.errors import NotInTransaction, OutboxError
from outbox.kinds import Kind, PartOf, columns

__all__ = ["Kind", "OneVersion", "PartOf", "Recorded", "RecordedQuerySet", "as_one", "columns"]

# Rows that are looked for by their unique values at a time.
_LOOKED_FOR = 100

Row = TypeVar("Row", bound=models.Model)


class RecordedQuerySet(models.QuerySet[Row]):
    """Records what changes many rows at once, in the transaction of the change."""

    def bulk_create(
        self,
        objs: Iterable[Row],
        batch_size: int | None = None,
        ignore_conflicts: bool = False,
        update_conflicts: bool = False,
        update_fields: Collection[str] | None = None,
        unique_fields: Collection[str] | None = None,
    ) -> list[Row]:
        """As Django's. Raises OutboxError for ignore_conflicts: nobody knows which rows are new."""
        if ignore_conflicts:
            raise OutboxError("bulk_create(ignore_conflicts=True) does not say what it created")
        given = list(objs)
        with open_block(self._written()) as block:
            upsert = update_conflicts and unique_fields and update_fields
            if upsert:
                self._note_conflicts(block, given, update_fields or (), unique_fields or ())
            made = super().bulk_create(
                given,
                batch_size=batch_size,
                update_conflicts=update_conflicts,
                update_fields=update_fields,
                unique_fields=unique_fields,
            )
            keys = known_keys(self.model, [row.pk for row in made])
            if upsert:
                # An object with a key of its own does not learn the key of the row that was there.
                keys += self._conflicting(given, unique_fields or ())
            block.note_created(self.model, keys)
        return made

    def bulk_update(
        self, objs: Iterable[Row], fields: Iterable[str], batch_size: int | None = None
    ) -> int:
        """As Django's, which calls update()."""
        with open_block(self._written()):
            return super().bulk_update(tuple(objs), fields, batch_size)

    def update(self, **values: Any) -> int:
        """As Django's. Locks the rows first, so that it records exactly those that it changes.

        Raises:
            OutboxError: the primary key gets a value that only the database knows.
        """
        if self.query.is_sliced or self.query.combinator:
            return super().update(**values)  # Django refuses it
        with open_block(self._written()) as block:
            keys = self._lock_keys()
            if _can_move(self.model, values):
                block.note_before(self.model, keys)
            changed = super(RecordedQuerySet, self._only(keys)).update(**values)
            block.note_after(self.model, _keys_after(self.model, keys, values))
        return changed

    def delete(self) -> tuple[int, dict[str, int]]:
        """As Django's; rows that it deletes by cascade are recorded, too."""
        if self.query.is_sliced or self.query.combinator or self.query.distinct_fields:
            return super().delete()  # Django refuses it
        with open_block(self._written()) as block:
            keys = self._lock_keys() if self._fields is None else []  # type: ignore[attr-defined]
            block.note_before(self.model, keys)
            leaving = {(concrete(self.model), key) for key in keys}
            block.leaving |= leaving
            try:
                return super().delete()
            finally:
                block.leaving -= leaving

    def _raw_delete(self, using: str | None) -> int:
        """As Django's, which sends no signals."""
        rows = self.using(using)
        with open_block(rows._written()) as block:
            block.note_before(self.model, rows._lock_keys())
            return super()._raw_delete(using)

    # A manager made of this queryset must not have these, like Django's.
    update.alters_data = True  # type: ignore[attr-defined]
    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]
    _raw_delete.alters_data = True  # type: ignore[attr-defined]

    def _lock_keys(self) -> list[Any]:
        """The primary keys, of rows that are locked as UPDATE locks them: other rows may refer to
        them meanwhile."""
        found: models.QuerySet[Row] = self.using(self._written()).order_by()
        query = found.query
        joins = query.distinct or query.group_by is not None or query.where.contains_over_clause
        # PostgreSQL locks no rows of a query that joins several into one, and FOR UPDATE OF takes
        # no name of a table with its schema.
        alone = joins or '"."' in self.model._meta.db_table
        if alone:
            found = rows_of(self.model, self._written()).filter(pk__in=found.values("pk"))
        of = () if alone else ("self",)
        locked = found.order_by("pk").select_for_update(of=of, no_key=True)
        names = [field.attname for field in self.model._meta.pk_fields]
        # Django cannot lock a query of a composite key as one value.
        if len(names) > 1:
            return list(dict.fromkeys(locked.values_list(*names)))
        return list(dict.fromkeys(locked.values_list(*names, flat=True)))

    def _only(self, keys: Sequence[Any]) -> RecordedQuerySet[Row]:
        """These rows of the queryset, however many they are."""
        return self.using(self._written()).filter(_HasKey(self.model, keys))

    def _note_conflicts(
        self,
        block: Block,
        objs: Sequence[Row],
        update_fields: Collection[str],
        unique_fields: Collection[str],
    ) -> None:
        """Note the rows that bulk_create() will update."""
        if _can_move(self.model, update_fields):
            # Nobody may make such a row after we have looked.
            table = connections[block.using].ops.quote_name(self.model._meta.db_table)
            with connections[block.using].cursor() as cursor:
                cursor.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        block.note_before(self.model, self._conflicting(objs, unique_fields))

    def _conflicting(self, objs: Sequence[Row], unique_fields: Collection[str]) -> list[Any]:
        """The primary keys of the rows that have the unique values of one of the objects."""
        names = [self.model._meta.pk.name if name == "pk" else name for name in unique_fields]
        fields: list[Any] = [self.model._meta.get_field(name) for name in names]
        nulls = any(
            getattr(each, "nulls_distinct", None) is False for each in self.model._meta.constraints
        )
        wanted = []
        for row in objs:
            values = {each.name: getattr(row, each.attname) for each in fields}
            for name, value in values.items():
                if hasattr(value, "resolve_expression") and name != self.model._meta.pk.name:
                    raise OutboxError(
                        "bulk_create(update_conflicts=True) with an expression as"
                        f" {self.model._meta.label}.{name} does not say which rows it changed"
                    )
            if any(hasattr(value, "resolve_expression") for value in values.values()):
                continue  # the database makes the key: the row is new
            if nulls or None not in values.values():
                wanted.append(_equal(values))
        found: dict[Any, None] = {}
        rows = rows_of(self.model, self._written())
        for at in range(0, len(wanted), _LOOKED_FOR):
            some = rows.filter(reduce(or_, wanted[at : at + _LOOKED_FOR]))
            found.update(dict.fromkeys(some.values_list("pk", flat=True)))
        return list(found)

    def _written(self) -> str:
        self._for_write = True
        return self.db


class _HasKey(Func):
    """Whether the primary key of a row is one of these. The keys are one array for each column:
    PostgreSQL takes no more than 65,535 parameters."""

    output_field = models.BooleanField()
    conditional = True

    def __init__(self, model: type[models.Model], keys: Sequence[Any]) -> None:
        self._columns = model._meta.pk_fields
        rows = keys if len(self._columns) > 1 else [(key,) for key in keys]
        self._values = [[row[place] for row in rows] for place in range(len(self._columns))]
        super().__init__(*(F(column.attname) for column in self._columns))

    def as_sql(self, compiler: Any, connection: Any, **_: Any) -> tuple[str, list[Any]]:  # type: ignore[override]
        columns, arrays, parameters = [], [], []
        for source in self.get_source_expressions():
            sql, given = compiler.compile(source)
            columns.append(sql)
            parameters.extend(given)
        for column, values in zip(self._columns, self._values, strict=True):
            arrays.append(f"%s::{column.cast_db_type(connection)}[]")
            parameters.append([column.get_db_prep_value(value, connection) for value in values])
        array = f"SELECT * FROM unnest({', '.join(arrays)})"  # noqa: S608 - our own names
        return f"({', '.join(columns)}) IN ({array})", parameters


def _equal(values: Mapping[str, Any]) -> Q:
    return Q(
        **{
            f"{name}__isnull" if value is None else name: True if value is None else value
            for name, value in values.items()
        }
    )


def _can_move(model: type[models.Model], names: Iterable[str]) -> bool:
    """Whether a change of these fields can make the row another document, or a part of another."""
    meta = model._meta
    kind = kind_of(concrete(model))
    wanted = kind.whole if isinstance(kind, PartOf) else kind.id
    if wanted == "pk":
        decisive = set(meta.pk_fields)
    else:
        decisive = {each for each in meta.concrete_fields if wanted in (each.name, each.attname)}
    if not decisive:
        return True  # a property: nobody knows what it reads
    if any(each.generated for each in decisive):
        return True  # PostgreSQL computes it of other columns
    changed = {meta.pk.name if name == "pk" else name for name in names}
    return any(each.name in changed or each.attname in changed for each in decisive)


def _keys_after(
    model: type[models.Model], keys: Sequence[Any], values: Mapping[str, Any]
) -> Sequence[Any]:
    """The primary keys of these rows after an update with these values."""
    fields = model._meta.pk_fields
    changes: dict[int, Any] = {}
    for place, field in enumerate(fields):
        for name in {field.name, field.attname, "pk"} & set(values):
            value = values[name]
            if hasattr(value, "resolve_expression"):
                raise OutboxError(
                    f"update({name}=...) of {model._meta.label} with an expression does not say"
                    " which primary keys the rows have afterwards: give each row its own value"
                )
            if isinstance(value, models.Model):
                value = getattr(value, field.target_field.attname)  # type: ignore[attr-defined]
            changes[place] = value
    if not changes:
        return keys
    rows = keys if len(fields) > 1 else [(key,) for key in keys]
    after = [tuple(changes.get(place, part) for place, part in enumerate(row)) for row in rows]
    return known_keys(model, after if len(fields) > 1 else [key for (key,) in after])


class Recorded(models.Model):
    """A model whose every change is a version of a document; `recorded_as` says how. What only the
    database knows, as changes by SQL, is recorded by a call of record()."""

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
        """As Django's, which save() calls, and records the row, in one transaction."""
        model = type(self)
        alias = using or router.db_for_write(model, instance=self)
        columns = [each.name for each in model._meta.concrete_fields if not each.primary_key]
        names = columns if update_fields is None else update_fields
        with open_block(alias) as block:
            # A copy is made by a save() without a primary key.
            new = self._state.adding or not known_keys(model, [self.pk])
            if not force_insert and (new or _can_move(model, names)):
                block.note_before(model, known_keys(model, [self.pk]))
            super().save_base(
                raw=raw,
                force_insert=force_insert,
                force_update=force_update,
                using=alias,
                update_fields=update_fields,
            )
            keys = known_keys(model, [self.pk])
            (block.note_created if new else block.note_after)(model, keys)

    save_base.alters_data = True  # type: ignore[attr-defined]

    def delete(
        self, using: str | None = None, keep_parents: bool = False
    ) -> tuple[int, dict[str, int]]:
        """As Django's; what it deletes by cascade is recorded in the same transaction."""
        with open_block(using or router.db_for_write(type(self), instance=self)):
            return super().delete(using=using, keep_parents=keep_parents)

    delete.alters_data = True  # type: ignore[attr-defined]

    def record(self, using: str | None = None) -> None:
        """Record the row as it is in the database now, or its deletion if it is not there any more.

        Raises:
            NotInTransaction: no transaction is open.
            OutboxError: the instance was never saved.
        """
        model = type(self)
        alias = using or router.db_for_write(model, instance=self)
        if not connections[alias].in_atomic_block:
            raise NotInTransaction(
                "record() needs a transaction: call it inside transaction.atomic(), with the change"
            )
        keys = known_keys(model, [self.pk])
        if not keys:
            raise OutboxError(
                f"record() of an instance of {model._meta.label} that was never saved"
            )
        with open_block(alias) as block:
            if not rows_of(model, alias).filter(pk__in=keys).exists():
                block.note_gone(self, keys[0])
            block.note_after(model, keys)


class OneVersion:
    """A mixin before ModelAdmin: what a form with inlines changes is one version."""

    model: Any

    def changeform_view(self, *args: Any, **options: Any) -> Any:
        """As Django's, in one block."""
        with as_one(router.db_for_write(self.model)):
            return super().changeform_view(*args, **options)  # type: ignore[misc]


def records_all_rows(manager: BaseManager[Any]) -> bool:
    """Return whether a manager records changes of many rows, and leaves no rows out."""
    whole = type(manager).get_queryset is BaseManager.get_queryset
    return whole and issubclass(manager._queryset_class, RecordedQuerySet)  # type: ignore[attr-defined]


def _prepare(sender: type[models.Model], **_: Any) -> None:
    """Have `order.items.add(item)` recorded: Django makes that change by the base manager."""
    meta = sender._meta
    if issubclass(sender, Recorded) and not meta.abstract and meta.base_manager_name is None:
        manager = meta.default_manager
        if manager is not None and records_all_rows(manager):
            meta.base_manager_name = manager.name


class_prepared.connect(_prepare, dispatch_uid="outbox")
