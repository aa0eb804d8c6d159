"""Changes that Django makes without save() or a queryset of the model: deletions, what they change
in other rows, and many-to-many relations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

from django.apps import apps
from django.db import models
from django.db.models.signals import (
    class_prepared,
    m2m_changed,
    post_delete,
    post_save,
    pre_delete,
)

from outbox.block import Block, concrete, current_block, keys_by, kind_of, open_block, rows_of
from outbox.errors import OutboxError
from outbox.kinds import Kind, PartOf, columns
from outbox.recorded import Recorded

logger = logging.getLogger(__name__)

Model = type[models.Model]

# What is to be recorded once the row is deleted; an attribute of its instance.
_LATER = "_outbox_later"
# What many-to-many relations had before they were cleared; an attribute of the instance.
_CLEARED = "_outbox_cleared"
# With these no row that refers to a deleted one is left, or Django changes none.
_CHANGE_NOTHING = (models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING)


def connect() -> None:
    """Have changes recorded that concern a recorded model."""
    for model in apps.get_models():
        _connect_model(model)
    class_prepared.connect(_connect_later, dispatch_uid="outbox.relations")


def _connect_later(sender: Model, **_: Any) -> None:
    """For a model that is made after the start."""
    if not sender._meta.abstract and sender._meta.apps is apps:
        key = (sender._meta.app_label, cast(str, sender._meta.model_name))
        apps.lazy_model_operation(_connect_model, key)


def _connect_model(model: Model) -> None:
    if issubclass(model, Recorded):
        _connect(model, "itself", _note_row)
        post_save.connect(_warn_of_fixture, model, dispatch_uid="outbox")
    if issubclass(model, Recorded) and not model._meta.proxy:
        for field, target in _changed_with(model):
            name = f"{model._meta.label}.{field.name}"
            _connect(target, name, partial(_note_referring, model, field))
    for field in model._meta.local_many_to_many:
        _connect_many_to_many(field)


def _connect(
    sender: Model,
    name: str,
    note: Callable[[models.Model, Block, object], Callable[[], None] | None],
) -> None:
    """Call `note` before a row is deleted, and what it returns afterwards.

    note: gets the instance, the block, and the instance or queryset whose delete() was called.
    """

    def before(instance: models.Model, using: str, origin: object = None, **_: Any) -> None:
        # Outside a block what is noted is recorded once this row is deleted.
        block = current_block(using) or Block(using)
        after = note(instance, block, origin)
        instance.__dict__.setdefault(_LATER, {})[name] = (block, after)

    pre_delete.connect(before, sender, weak=False, dispatch_uid=f"outbox {name}")
    post_delete.connect(_finish, sender, dispatch_uid="outbox")


def _finish(instance: models.Model, using: str, **_: Any) -> None:
    for block, after in instance.__dict__.pop(_LATER, {}).values():
        if after is not None:
            after()
        if block is not current_block(using):
            block.record()


def _note_row(instance: models.Model, block: Block, origin: object) -> None:
    """What the row is known by, as long as the database has it: it may have been changed without
    save(), or by another transaction."""
    model = concrete(type(instance))
    if (model, instance.pk) in block.leaving:
        return
    is_cascade = origin is not instance and block is current_block(block.using)
    if is_cascade and isinstance(kind_of(model), PartOf):
        block.note_siblings(instance)
    if (model, instance.pk) not in block.leaving:
        block.note_before(model, [instance.pk])


_warned: set[Model] = set()


def _warn_of_fixture(sender: Model, raw: bool, **_: Any) -> None:
    """Rows of a fixture may refer to rows that come later: they have no snapshot yet."""
    if raw and sender not in _warned:
        _warned.add(sender)
        label = sender._meta.label
        logger.warning("%s: rows of a fixture are not recorded; call record() of each", label)


def _changed_with(model: Model) -> Iterator[tuple[models.Field[Any, Any], Model]]:
    """The foreign keys that Django changes when it deletes a row of the other model, as
    SET_NULL."""
    for field in model._meta.concrete_fields:
        relation = field.remote_field
        if relation is not None and relation.on_delete not in _CHANGE_NOTHING:
            for target in _same_table(relation.model):
                yield field, target


def _same_table(model: Model) -> Iterator[Model]:
    """The model and its proxies: each of them sends signals of its own."""
    return (each for each in apps.get_models() if concrete(each) is concrete(model))


def _note_referring(
    model: Model,
    field: models.Field[Any, Any],
    instance: models.Model,
    block: Block,
    _: object,
) -> Callable[[], None]:
    """The rows that refer to the instance are there afterwards, and refer to another or to none."""
    rows = rows_of(model, block.using).filter(**{field.name: instance})
    keys = list(rows.values_list("pk", flat=True))
    block.note_before(model, keys)
    return partial(block.note_after, model, keys)


def _connect_many_to_many(field: models.ManyToManyField[Any, Any]) -> None:
    """A relation is a change of both sides, if their snapshots can show it."""
    through = cast(Model, field.remote_field.through)
    if not isinstance(through, type) or issubclass(through, Recorded):
        return  # Django's checks name a model that is not there; Recorded rows speak for themselves
    ends = [
        (field.model, field.m2m_field_name(), field.m2m_reverse_field_name()),
        (field.related_model, field.m2m_reverse_field_name(), field.m2m_field_name()),
    ]
    shown = [end for end in ends if _shows_relations(end[0])]
    if not shown:
        return
    change = partial(_note_relation, through, field)
    m2m_changed.connect(
        change, through, weak=False, dispatch_uid=f"outbox {field.model._meta.label}.{field.name}"
    )
    for _, own, other in shown:
        target = through._meta.get_field(other).related_model
        for sender in _same_table(cast(Model, target)):
            name = f"{through._meta.label}.{own}"
            _connect(sender, name, partial(_note_related, through, own, other))


def _shows_relations(model: Model) -> bool:
    # A model without recorded_as is outbox.E004.
    kind = getattr(model, "recorded_as", None) if issubclass(model, Recorded) else None
    return isinstance(kind, PartOf) or (isinstance(kind, Kind) and kind.snapshot is not columns)


def _note_related(
    through: Model, own: str, other: str, instance: models.Model, block: Block, _: object
) -> Callable[[], None]:
    """The rows at the other end of the relations of a row that is deleted."""
    model, keys = _related(through, own, other, instance, block.using)
    block.note_before(model, keys)
    return partial(block.note_after, model, keys)


def _related(
    through: Model, own: str, other: str, instance: models.Model, using: str
) -> tuple[Model, list[Any]]:
    reference: Any = through._meta.get_field(own)
    rows = rows_of(through, using).filter(**{other: instance})
    values = set(rows.values_list(reference.attname, flat=True)) - {None}
    model = concrete(reference.related_model)
    return model, keys_by(model, reference.target_field, values, using)


def _note_relation(
    through: Model,
    field: models.ManyToManyField[Any, Any],
    instance: models.Model,
    action: str,
    reverse: bool,
    model: Model,
    pk_set: set[Any] | None,
    using: str,
    **_: Any,
) -> None:
    """Record both sides of a relation that add(), remove(), set() or clear() changed."""
    source, target = field.m2m_field_name(), field.m2m_reverse_field_name()
    if reverse:
        source, target = target, source
    if action == "pre_add" and field.remote_field.symmetrical and current_block(using) is None:
        raise OutboxError(
            f"{field.model._meta.label}.{field.name} is symmetrical: Django adds the two directions"
            " one after the other. Call add() and set() inside outbox.recorded.as_one()"
        )
    if action == "pre_clear":
        cleared = instance.__dict__.setdefault(_CLEARED, {})
        cleared[through, source] = _related(through, target, source, instance, using)[1]
    if not action.startswith("post_"):
        return
    others = pk_set
    if action == "post_clear":
        others = instance.__dict__[_CLEARED].pop((through, source), None)
    elif pk_set is not None:
        reference: Any = through._meta.get_field(target)
        others = set(keys_by(model, reference.target_field, pk_set, using))
    with open_block(using) as block:
        for side, keys in ((type(instance), [instance.pk]), (model, others or ())):
            if _shows_relations(side):
                block.note_after(side, keys)
