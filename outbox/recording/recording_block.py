"""Finds the rows that change in a `with as_one()` block, and records their documents at its end.

*Before* a row changes, a RecordingBlock notes the row and the document that the row stands for. At
the end of the block, it reads the noted rows once from the database and records their documents. If
no row stands for a noted document any more, the deletion of the document is recorded.

Only the rows at the end count. So it does not matter whether a row got another id, or was deleted
and created again, or whether a change was rolled back to a savepoint.
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

from outbox.recording.kinds import Kind, PartOf
from outbox.recording.primary import read_from_primary
from outbox.recording.writer import Change, record_many

# How many rows are read and recorded at a time.
_CHUNK_ROWS = 500
# How the statements of Django's savepoints begin.
_SAVEPOINT = "SAVEPOINT "
_ROLLBACK = "ROLLBACK TO SAVEPOINT "

Model = type[models.Model]


@dataclass(slots=True)
class RecordingBlock:
    """The changes in a `with as_one()` block, which are recorded at its end."""

    using: str  # the database
    # The primary keys of the rows to read at the end. For a part, the row of its document is read.
    rows: dict[Model, dict[Any, None]] = field(default_factory=dict)
    # For each row, the deletion of the document that it stood for before the block; None for a new
    # row.
    before: dict[Model, dict[Any, Change | None]] = field(default_factory=dict)
    # The parts that are being deleted, if their documents are already noted.
    leaving: set[tuple[Model, Any]] = field(default_factory=set)
    # The rows in `before`, in the order in which they were noted.
    _noted: list[tuple[Model, Any]] = field(default_factory=list)
    # By savepoint, how many rows were noted when it began.
    _savepoints: dict[str, int] = field(default_factory=dict)

    def note_before(self, model: Model, keys: Iterable[Any]) -> None:
        """Lock rows that will change, and remember the documents that these rows stand for."""
        model = get_concrete_model(model)
        kind = get_kind(model)
        if isinstance(kind, PartOf):
            self.note_after(
                get_whole_model(model, kind), _find_whole_keys(model, kind, keys, self.using)
            )
            return
        deletions = self.before.get(model, {})
        keys = list(keys)
        with read_from_primary(self.using):
            for chunk in _split_keys([key for key in keys if key not in deletions]):
                for row in _select_locked(model, chunk, self.using):
                    self._note_once(model, row.pk, kind.make_deletion(row))
        self.note_after(model, keys)

    def note_siblings(self, part: models.Model) -> None:
        """Remember that the document of a part changes, and that all its parts are being deleted.

        Call it before a cascade, which deletes the parts one by one. It saves a query for each
        part.
        """
        model = get_concrete_model(type(part))
        kind = cast(PartOf, get_kind(model))
        reference: Any = model._meta.get_field(kind.whole)
        value = getattr(part, reference.attname)
        if value is None:
            return
        rows = (
            select_all_rows(model, self.using).filter(**{reference.attname: value}).order_by("pk")
        )
        keys = rows.select_for_update(no_key=True).values_list("pk", flat=True)
        self.leaving.update((model, key) for key in keys)
        whole = get_whole_model(model, kind)
        self.note_after(whole, find_keys_by(whole, reference.target_field, {value}, self.using))

    def note_after(self, model: Model, keys: Iterable[Any]) -> None:
        """Remember that these rows changed."""
        self.rows.setdefault(get_concrete_model(model), {}).update(dict.fromkeys(keys))

    def note_created(self, model: Model, keys: Collection[Any]) -> None:
        """Remember that these rows were created.

        If an earlier state of a row is noted already, that state is kept. This happens, for
        example, if the row was deleted and created again in this block.
        """
        model = get_concrete_model(model)
        if not isinstance(get_kind(model), PartOf):
            for key in keys:
                self._note_once(model, key, None)
        self.note_after(model, keys)

    def note_deleted_earlier(self, instance: models.Model, key: Any) -> None:
        """Remember a row that was deleted before this call. `instance` has the row's values."""
        model = get_concrete_model(type(instance))
        kind = get_kind(model)
        if isinstance(kind, PartOf):
            reference: Any = model._meta.get_field(kind.whole)
            values = {getattr(instance, reference.attname)} - {None}
            whole = get_whole_model(model, kind)
            self.note_after(whole, find_keys_by(whole, reference.target_field, values, self.using))
            return
        columns = [field.attname for field in model._meta.concrete_fields]
        if kind.id in columns:
            same_document = select_all_rows(model, self.using).filter(
                **{kind.id: getattr(instance, kind.id)}
            )
            if same_document.exists():
                return  # another row is this document now
        with read_from_primary(self.using):
            self._note_once(model, key, kind.make_deletion(instance))

    def follow_savepoints(
        self, execute: Callable[..., Any], sql: Any, params: Any, is_many: bool, context: Any
    ) -> Any:
        """Execute an SQL statement. If it rolls back to a savepoint, forget the rows noted since.

        The rollback unlocks these rows, so that other transactions can change them. Django calls
        this method for each statement.
        """
        result = execute(sql, params, is_many, context)
        if isinstance(sql, str):
            if sql.startswith(_SAVEPOINT):
                self._savepoints[sql.removeprefix(_SAVEPOINT)] = len(self._noted)
            elif sql.startswith(_ROLLBACK):
                self._forget_noted_after(self._savepoints.get(sql.removeprefix(_ROLLBACK), 0))
        return result

    def _note_once(self, model: Model, key: Any, deletion: Change | None) -> None:
        deletions = self.before.setdefault(model, {})
        if key not in deletions:
            deletions[key] = deletion
            self._noted.append((model, key))

    def _forget_noted_after(self, count: int) -> None:
        """Forget all noted rows except the first `count`, and all parts that are being deleted."""
        for model, key in self._noted[count:]:
            del self.before[model][key]
        del self._noted[count:]
        self.leaving.clear()

    def record_changes(self) -> None:
        """Record each changed document once."""
        with read_from_primary(self.using):
            self._record_noted()

    def _record_noted(self) -> None:
        self._replace_parts_by_wholes()
        recorded_keys: set[str] = set()
        # All transactions lock documents in this order, so that they do not deadlock.
        for model in sorted(self.rows, key=lambda model: model._meta.label):
            for chunk in _split_keys(_sort_keys(self.rows[model])):
                kind = cast(Kind, get_kind(model))
                changes = [
                    kind.make_change(row) for row in _select_locked(model, chunk, self.using)
                ]
                record_many(changes, using=self.using)
                recorded_keys.update(change.key for change in changes)
        deleted = [
            change
            for changes in self.before.values()
            for change in changes.values()
            if change is not None and change.key not in recorded_keys
        ]
        record_many(deleted, using=self.using)

    def _replace_parts_by_wholes(self) -> None:
        """Replace the keys of parts in `rows` by the keys of the documents with these parts."""
        while parts := [model for model in self.rows if isinstance(get_kind(model), PartOf)]:
            for model in parts:
                kind = cast(PartOf, get_kind(model))
                keys = self.rows.pop(model)
                self.note_after(
                    get_whole_model(model, kind), _find_whole_keys(model, kind, keys, self.using)
                )


# The open block of each connection. A context variable would not do: a thread that has a copy of
# the context has its own transaction.
_blocks: WeakKeyDictionary[BaseDatabaseWrapper, RecordingBlock] = WeakKeyDictionary()


@contextmanager
def as_one(using: str | None = None) -> Iterator[None]:
    """Record the changes in the `with` block as one version for each document, in one transaction.

    The versions are recorded at the end of the outermost `with as_one()` block. Also usable as a
    decorator.
    """
    with open_block(using or router.db_for_write(apps.get_model("outbox", "Document"))):
        yield


@contextmanager
def open_block(using: str) -> Iterator[RecordingBlock]:
    """Begin a RecordingBlock, or continue the one that is open on this connection."""
    with transaction.atomic(using):
        connection = connections[using]
        block = _blocks.get(connection)
        if block is not None:
            yield block
            return
        block = _blocks[connection] = RecordingBlock(using)
        try:
            with connection.execute_wrapper(block.follow_savepoints):
                yield block
        finally:
            del _blocks[connection]
        if not connection.needs_rollback:
            block.record_changes()


def get_current_block(using: str) -> RecordingBlock | None:
    """Return the RecordingBlock that is open on this connection, or None."""
    return _blocks.get(connections[using])


def get_concrete_model(model: Model) -> Model:
    """Return the model itself, or for a proxy the model that has the table."""
    return cast(Model, model._meta.concrete_model)


def get_kind(model: Model) -> Kind | PartOf:
    """Return the Kind or PartOf that a recorded model declares."""
    return cast("Kind | PartOf", model.recorded_as)  # type: ignore[attr-defined]


def get_whole_model(model: Model, kind: PartOf) -> Model:
    """Return the model whose document includes the rows of `model`, e.g. Order for OrderLine."""
    return get_concrete_model(cast(Model, model._meta.get_field(kind.whole).related_model))


def convert_known_keys(model: Model, keys: Iterable[Any]) -> list[Any]:
    """Convert primary keys to the types that the database returns, e.g. a text to a UUID.

    Keys that the database has yet to generate are left out.
    """
    fields = model._meta.pk_fields
    converted = []
    for key in keys:
        values = key if isinstance(key, tuple) else (key,)
        if not any(value is None or hasattr(value, "resolve_expression") for value in values):
            parts = [_convert_value(*pair) for pair in zip(fields, values, strict=True)]
            converted.append(tuple(parts) if isinstance(key, tuple) else parts[0])
    return converted


def _convert_value(column: models.Field[Any, Any], value: Any) -> Any:
    try:
        return column.to_python(value)
    except ValidationError:
        return value  # Django refuses this value when it writes the row


def select_all_rows(model: Model, using: str) -> models.QuerySet[Any]:
    """Return a queryset of all rows of a model, also of rows that its managers hide."""
    return models.QuerySet(get_concrete_model(model), using=using)


def _select_locked(model: Model, keys: Sequence[Any], using: str) -> models.QuerySet[Any]:
    """Return a queryset that locks these rows.

    If two transactions change a row, the second one waits here, and then sees what the first one
    changed.
    """
    rows = select_all_rows(model, using).filter(pk__in=keys).order_by("pk")
    return rows.select_for_update(no_key=True)


def _find_whole_keys(model: Model, kind: PartOf, keys: Iterable[Any], using: str) -> list[Any]:
    """Lock the rows of parts, and return the primary keys of the documents they belong to now."""
    reference: Any = model._meta.get_field(kind.whole)
    values: set[Any] = set()
    for chunk in _split_keys(_sort_keys(keys)):
        values.update(_select_locked(model, chunk, using).values_list(reference.attname, flat=True))
    values.discard(None)
    return find_keys_by(get_whole_model(model, kind), reference.target_field, values, using)


def find_keys_by(
    model: Model, target: models.Field[Any, Any], values: Iterable[Any], using: str
) -> list[Any]:
    """Return the primary keys of the rows whose column `target` has one of the values."""
    if target.primary_key:
        return list(values)
    pks: list[Any] = []
    for chunk in _split_keys(list(values)):
        rows = select_all_rows(model, using).filter(**{f"{target.name}__in": chunk})
        pks.extend(rows.values_list("pk", flat=True))
    return pks


def _split_keys(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (keys[start : start + _CHUNK_ROWS] for start in range(0, len(keys), _CHUNK_ROWS))


def _sort_keys(keys: Iterable[Any]) -> list[Any]:
    """Sort keys in an order that all transactions share, even if Python cannot compare them."""
    try:
        return sorted(keys)
    except TypeError:
        sort_key: Callable[[Any], tuple[str, str]] = lambda key: (type(key).__name__, repr(key))  # noqa: E731
        return sorted(keys, key=sort_key)
