"""Which rows change in a block of code, and the versions that follow from them at its end.

A block notes what a row is *before* it changes, and which rows changed. At its end it reads the
rows once, as the database then has them. A document that a row was before, and that no row is any
more, is deleted. So a row that got another id, was deleted, or was deleted and made again needs no
case of its own, and a change that was rolled back to a savepoint is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import connections, models, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from outbox.kinds import Kind, PartOf
from outbox.primary import reading
from outbox.writer import Change, record_many

# Rows that are read and recorded at a time.
_ROWS = 500
# How the statements of Django's savepoints begin.
_SAVEPOINT = "SAVEPOINT "
_ROLLBACK = "ROLLBACK TO SAVEPOINT "

Model = type[models.Model]


@dataclass(slots=True)
class Block:
    """What a block of as_one() has to record at its end, in the database `using`."""

    using: str
    # The rows that are read at the end, by their primary keys. Rows of parts stand for their whole.
    rows: dict[Model, dict[Any, None]] = field(default_factory=dict)
    # The deletion of the document that each row was before the block; None if there was no row.
    before: dict[Model, dict[Any, Change | None]] = field(default_factory=dict)
    # Parts that are being deleted, and whose wholes are noted.
    leaving: set[tuple[Model, Any]] = field(default_factory=set)
    # The rows of `before`, in the order in which they were noted.
    _noted: list[tuple[Model, Any]] = field(default_factory=list)
    # How many rows were noted when each savepoint began.
    _savepoints: dict[str, int] = field(default_factory=dict)

    def note_before(self, model: Model, keys: Iterable[Any]) -> None:
        """Note what these rows are now, before something changes them, and lock them."""
        model = concrete(model)
        kind = kind_of(model)
        if isinstance(kind, PartOf):
            self.note_after(whole_of(model, kind), _wholes(model, kind, keys, self.using))
            return
        known = self.before.get(model, {})
        keys = list(keys)
        with reading(self.using):
            for part in _parts([key for key in keys if key not in known]):
                for row in _locked(model, part, self.using):
                    self._note(model, row.pk, kind.deletion(row))
        self.note_after(model, keys)

    def note_siblings(self, part: models.Model) -> None:
        """Note the document of a part, with one query for all parts that it has: a cascade deletes
        them one by one."""
        model = concrete(type(part))
        kind = cast(PartOf, kind_of(model))
        reference: Any = model._meta.get_field(kind.whole)
        value = getattr(part, reference.attname)
        if value is None:
            return
        rows = rows_of(model, self.using).filter(**{reference.attname: value}).order_by("pk")
        keys = rows.select_for_update(no_key=True).values_list("pk", flat=True)
        self.leaving.update((model, key) for key in keys)
        whole = whole_of(model, kind)
        self.note_after(whole, keys_by(whole, reference.target_field, {value}, self.using))

    def note_after(self, model: Model, keys: Iterable[Any]) -> None:
        """Note that these rows changed."""
        self.rows.setdefault(concrete(model), {}).update(dict.fromkeys(keys))

    def note_created(self, model: Model, keys: Collection[Any]) -> None:
        """Note that these rows are there now; before, they were not, unless they are noted."""
        model = concrete(model)
        if not isinstance(kind_of(model), PartOf):
            for key in keys:
                self._note(model, key, None)
        self.note_after(model, keys)

    def note_gone(self, instance: models.Model, key: Any) -> None:
        """Note what a row was that somebody deleted before we could ask, as the instance says."""
        model = concrete(type(instance))
        kind = kind_of(model)
        if isinstance(kind, PartOf):
            reference: Any = model._meta.get_field(kind.whole)
            values = {getattr(instance, reference.attname)} - {None}
            whole = whole_of(model, kind)
            self.note_after(whole, keys_by(whole, reference.target_field, values, self.using))
            return
        names = [each.attname for each in model._meta.concrete_fields]
        if kind.id in names:
            another = rows_of(model, self.using).filter(**{kind.id: getattr(instance, kind.id)})
            if another.exists():
                return  # the document is another row by now
        with reading(self.using):
            self._note(model, key, kind.deletion(instance))

    def follow_savepoints(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        """Forget what was noted since a savepoint that is rolled back: the rows are not locked any
        more, and another transaction can change them. A wrapper of Django's cursors."""
        result = execute(sql, params, many, context)
        if isinstance(sql, str):
            if sql.startswith(_SAVEPOINT):
                self._savepoints[sql.removeprefix(_SAVEPOINT)] = len(self._noted)
            elif sql.startswith(_ROLLBACK):
                self._forget(self._savepoints.get(sql.removeprefix(_ROLLBACK), 0))
        return result

    def _note(self, model: Model, key: Any, deletion: Change | None) -> None:
        known = self.before.setdefault(model, {})
        if key not in known:
            known[key] = deletion
            self._noted.append((model, key))

    def _forget(self, count: int) -> None:
        """Forget all that was noted after so many rows."""
        for model, key in self._noted[count:]:
            del self.before[model][key]
        del self._noted[count:]
        self.leaving.clear()

    def record(self) -> None:
        """Record each document that changed, once."""
        with reading(self.using):
            self._record()

    def _record(self) -> None:
        self._replace_parts()
        written: set[str] = set()
        # All blocks in one order, so that two of them do not wait for each other.
        for model in sorted(self.rows, key=lambda model: model._meta.label):
            for part in _parts(_in_order(self.rows[model])):
                kind = cast(Kind, kind_of(model))
                changes = [kind.change(row) for row in _locked(model, part, self.using)]
                record_many(changes, using=self.using)
                written.update(change.key for change in changes)
        deleted = [
            change
            for changes in self.before.values()
            for change in changes.values()
            if change is not None and change.key not in written
        ]
        record_many(deleted, using=self.using)

    def _replace_parts(self) -> None:
        """Put the documents that rows are parts of into the place of these rows."""
        while parts := [model for model in self.rows if isinstance(kind_of(model), PartOf)]:
            for model in parts:
                kind = cast(PartOf, kind_of(model))
                keys = self.rows.pop(model)
                self.note_after(whole_of(model, kind), _wholes(model, kind, keys, self.using))


# By connection, not by context: a thread with a copy of our context has a transaction of its own.
_blocks: WeakKeyDictionary[BaseDatabaseWrapper, Block] = WeakKeyDictionary()


@contextmanager
def as_one(using: str | None = None) -> Iterator[None]:
    """A transaction whose changes of a document are one version, recorded at the end of the block;
    also usable as a decorator. A block inside of another one is a part of it."""
    with open_block(using or router.db_for_write(apps.get_model("outbox", "Document"))):
        yield


@contextmanager
def open_block(using: str) -> Iterator[Block]:
    """Begin a block, or go on with the one that is open on this connection."""
    with transaction.atomic(using):
        connection = connections[using]
        block = _blocks.get(connection)
        if block is not None:
            yield block
            return
        block = _blocks[connection] = Block(using)
        try:
            with connection.execute_wrapper(block.follow_savepoints):
                yield block
        finally:
            del _blocks[connection]
        if not connection.needs_rollback:
            block.record()


def current_block(using: str) -> Block | None:
    """Return the block that is open on this connection."""
    return _blocks.get(connections[using])


def concrete(model: Model) -> Model:
    """Return the model that has the table: a proxy is another class for the same rows."""
    return cast(Model, model._meta.concrete_model)


def kind_of(model: Model) -> Kind | PartOf:
    """Return how the rows of a recorded model are recorded."""
    return cast("Kind | PartOf", model.recorded_as)  # type: ignore[attr-defined]


def whole_of(model: Model, kind: PartOf) -> Model:
    """Return the model of the document that rows of this model are parts of."""
    return concrete(cast(Model, model._meta.get_field(kind.whole).related_model))


def known_keys(model: Model, keys: Iterable[Any]) -> list[Any]:
    """Return primary keys as the database gives them, without those that it has yet to make."""
    fields = model._meta.pk_fields
    found = []
    for key in keys:
        values = key if isinstance(key, tuple) else (key,)
        if not any(value is None or hasattr(value, "resolve_expression") for value in values):
            read = [_read(*pair) for pair in zip(fields, values, strict=True)]
            found.append(tuple(read) if isinstance(key, tuple) else read[0])
    return found


def _read(column: models.Field[Any, Any], value: Any) -> Any:
    try:
        return column.to_python(value)
    except ValidationError:
        return value  # Django refuses it when it writes the row


def rows_of(model: Model, using: str) -> models.QuerySet[Any]:
    """Return all rows of a model, whatever its managers leave out."""
    return models.QuerySet(concrete(model), using=using)


def _locked(model: Model, keys: Sequence[Any], using: str) -> models.QuerySet[Any]:
    """Locked: of two transactions the later one sees what the other one changed, also of parts."""
    rows = rows_of(model, using).filter(pk__in=keys).order_by("pk")
    return rows.select_for_update(no_key=True)


def _wholes(model: Model, kind: PartOf, keys: Iterable[Any], using: str) -> list[Any]:
    """The primary keys of the documents that these rows are parts of now; the rows are locked."""
    reference: Any = model._meta.get_field(kind.whole)
    values: set[Any] = set()
    for part in _parts(_in_order(keys)):
        values.update(_locked(model, part, using).values_list(reference.attname, flat=True))
    values.discard(None)
    return keys_by(whole_of(model, kind), reference.target_field, values, using)


def keys_by(
    model: Model, target: models.Field[Any, Any], values: Iterable[Any], using: str
) -> list[Any]:
    """Return the primary keys of the rows whose column `target` has one of the values."""
    if target.primary_key:
        return list(values)
    found: list[Any] = []
    for part in _parts(list(values)):
        rows = rows_of(model, using).filter(**{f"{target.name}__in": part})
        found.extend(rows.values_list("pk", flat=True))
    return found


def _parts(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (keys[at : at + _ROWS] for at in range(0, len(keys), _ROWS))


def _in_order(keys: Iterable[Any]) -> list[Any]:
    """One order for all transactions, also of keys that Python cannot compare."""
    try:
        return sorted(keys)
    except TypeError:
        by_text: Callable[[Any], tuple[str, str]] = lambda key: (type(key).__name__, repr(key))  # noqa: E731
        return sorted(keys, key=by_text)
