"""Deletions: of recorded rows, and of rows that recorded ones refer to. Django signals each row,
whoever deletes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.apps import apps
from django.db import models
from django.db.models.signals import post_delete, pre_delete

from outbox.recorded import (
    Kind,
    PartOf,
    Recorded,
    foreign_key,
    record_deleted,
    record_rows,
    whole_of,
)

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
    """The foreign keys that Django changes when it deletes a row of the other model, as SET_NULL;
    with that model and its proxies."""
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
        whole = foreign_key(model, kind).value_from_object(row)
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
