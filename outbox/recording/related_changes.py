"""Records changes that Django makes without save() or a queryset of the model.

These are deletions, changes in other rows that follow from a deletion, and changes of many-to-many
relations.
"""

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

from outbox.errors import OutboxError
from outbox.recorded import Recorded
from outbox.recording.kinds import Kind, PartOf, columns
from outbox.recording.recording_block import (
    RecordingBlock,
    find_keys_by,
    get_concrete_model,
    get_current_block,
    get_kind,
    open_block,
    select_all_rows,
)

logger = logging.getLogger(__name__)

Model = type[models.Model]

# The attribute of an instance with the functions to call after its row is deleted.
_NOTED_CHANGES = "_outbox_later"
# The attribute of an instance with the keys of its relations before they were cleared.
_CLEARED_KEYS = "_outbox_cleared"
# The values of on_delete with which Django does not update rows that refer to a deleted row.
_ACTIONS_WITHOUT_UPDATE = (models.CASCADE, models.PROTECT, models.RESTRICT, models.DO_NOTHING)


def connect_models() -> None:
    """Connect the signals of all models whose changes can change a recorded document."""
    for model in apps.get_models():
        _connect_model(model)
    class_prepared.connect(_connect_later, dispatch_uid="outbox.recording.related_changes")


def _connect_later(sender: Model, **_: Any) -> None:
    """Connect the signals of a model that is defined after `connect_models` was called."""
    if not sender._meta.abstract and sender._meta.apps is apps:
        key = (sender._meta.app_label, cast(str, sender._meta.model_name))
        apps.lazy_model_operation(_connect_model, key)


def _connect_model(model: Model) -> None:
    if issubclass(model, Recorded):
        _connect_deletion(model, "itself", _note_row)
        post_save.connect(_warn_of_fixture, model, dispatch_uid="outbox")
    if issubclass(model, Recorded) and not model._meta.proxy:
        for field, target in _list_updated_foreign_keys(model):
            name = f"{model._meta.label}.{field.name}"
            _connect_deletion(target, name, partial(_note_referring, model, field))
    for field in model._meta.local_many_to_many:
        _connect_many_to_many(field)


def _connect_deletion(
    sender: Model,
    name: str,
    note: Callable[[models.Model, RecordingBlock, object], Callable[[], None] | None],
) -> None:
    """Connect `note` to signals, so that it is called before each deletion of a row of `sender`.

    Args:
        name: Identifies the receiver of the signal, so that it is connected only once.
        note: Takes the instance, the RecordingBlock, and the instance or queryset on which delete()
            was called. Returns a function to call after the deletion, or None.
    """

    def note_before_deletion(
        instance: models.Model, using: str, origin: object = None, **_: Any
    ) -> None:
        # Outside of as_one(), the changes are recorded when this row is deleted.
        block = get_current_block(using) or RecordingBlock(using)
        callback = note(instance, block, origin)
        instance.__dict__.setdefault(_NOTED_CHANGES, {})[name] = (block, callback)

    pre_delete.connect(note_before_deletion, sender, weak=False, dispatch_uid=f"outbox {name}")
    post_delete.connect(_record_after_deletion, sender, dispatch_uid="outbox")


def _record_after_deletion(instance: models.Model, using: str, **_: Any) -> None:
    for block, callback in instance.__dict__.pop(_NOTED_CHANGES, {}).values():
        if callback is not None:
            callback()
        if block is not get_current_block(using):
            block.record_changes()


def _note_row(instance: models.Model, block: RecordingBlock, origin: object) -> None:
    """Note the row as the database has it, because the instance may be out of date."""
    model = get_concrete_model(type(instance))
    if (model, instance.pk) in block.leaving:
        return
    is_cascade = origin is not instance and block is get_current_block(block.using)
    if is_cascade and isinstance(get_kind(model), PartOf):
        block.note_siblings(instance)
    if (model, instance.pk) not in block.leaving:
        block.note_before(model, [instance.pk])


_warned: set[Model] = set()


def _warn_of_fixture(sender: Model, raw: bool, **_: Any) -> None:
    """Warn that rows of a fixture are not recorded, because they may refer to later rows."""
    if raw and sender not in _warned:
        _warned.add(sender)
        label = sender._meta.label
        logger.warning("%s: rows of a fixture are not recorded; call record() for each", label)


def _list_updated_foreign_keys(model: Model) -> Iterator[tuple[models.Field[Any, Any], Model]]:
    """Yield the foreign keys of `model` that Django updates when their target row is deleted.

    An example is a foreign key with SET_NULL. A foreign key is yielded once with the model to which
    it refers, and once with each proxy of that model.
    """
    for field in model._meta.concrete_fields:
        relation = field.remote_field
        if relation is not None and relation.on_delete not in _ACTIONS_WITHOUT_UPDATE:
            for target in _list_models_of_table(relation.model):
                yield field, target


def _list_models_of_table(model: Model) -> Iterator[Model]:
    """Yield all models with the same table, because Django sends separate signals for proxies."""
    return (
        candidate
        for candidate in apps.get_models()
        if get_concrete_model(candidate) is get_concrete_model(model)
    )


def _note_referring(
    model: Model,
    field: models.Field[Any, Any],
    instance: models.Model,
    block: RecordingBlock,
    _: object,
) -> Callable[[], None]:
    """Note the rows that refer to `instance`: its deletion will change their foreign keys.

    Returns:
        A function to call after the deletion: it notes that these rows have changed.
    """
    rows = select_all_rows(model, block.using).filter(**{field.name: instance})
    keys = list(rows.values_list("pk", flat=True))
    block.note_before(model, keys)
    return partial(block.note_after, model, keys)


def _connect_many_to_many(field: models.ManyToManyField[Any, Any]) -> None:
    """Connect signals so that changes of a many-to-many relation are recorded for both sides.

    A side is left out if the model of the side is not recorded, or if the snapshots of the model
    contain only columns and so do not show the relation.
    """
    through = cast(Model, field.remote_field.through)
    if not isinstance(through, type) or issubclass(through, Recorded):
        # Django's checks report a missing model. If the rows of the relation are Recorded, they
        # record its changes.
        return
    ends = [
        (field.model, field.m2m_field_name(), field.m2m_reverse_field_name()),
        (field.related_model, field.m2m_reverse_field_name(), field.m2m_field_name()),
    ]
    visible_ends = [end for end in ends if _shows_relations(end[0])]
    if not visible_ends:
        return
    note_change = partial(_note_relation, through, field)
    m2m_changed.connect(
        note_change,
        through,
        weak=False,
        dispatch_uid=f"outbox {field.model._meta.label}.{field.name}",
    )
    for _, own_field, other_field in visible_ends:
        target = through._meta.get_field(other_field).related_model
        for sender in _list_models_of_table(cast(Model, target)):
            name = f"{through._meta.label}.{own_field}"
            _connect_deletion(sender, name, partial(_note_related, through, own_field, other_field))


def _shows_relations(model: Model) -> bool:
    # A model without recorded_as is reported by the check outbox.E004.
    kind = getattr(model, "recorded_as", None) if issubclass(model, Recorded) else None
    return isinstance(kind, PartOf) or (isinstance(kind, Kind) and kind.snapshot is not columns)


def _note_related(
    through: Model,
    own_field: str,
    other_field: str,
    instance: models.Model,
    block: RecordingBlock,
    _: object,
) -> Callable[[], None]:
    """Note the rows to which `instance` is related, before the deletion of `instance`.

    Returns:
        A function to call after the deletion: it notes that these rows have changed.
    """
    model, keys = _find_related_keys(through, own_field, other_field, instance, block.using)
    block.note_before(model, keys)
    return partial(block.note_after, model, keys)


def _find_related_keys(
    through: Model, own_field: str, other_field: str, instance: models.Model, using: str
) -> tuple[Model, list[Any]]:
    reference: Any = through._meta.get_field(own_field)
    rows = select_all_rows(through, using).filter(**{other_field: instance})
    values = set(rows.values_list(reference.attname, flat=True)) - {None}
    model = get_concrete_model(reference.related_model)
    return model, find_keys_by(model, reference.target_field, values, using)


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
    if action == "pre_add" and field.remote_field.symmetrical and get_current_block(using) is None:
        raise OutboxError(
            f"{field.model._meta.label}.{field.name} is symmetrical, so Django adds each relation"
            " in two steps. Call add() and set() inside outbox.recorded.as_one()"
        )
    if action == "pre_clear":
        cleared = instance.__dict__.setdefault(_CLEARED_KEYS, {})
        cleared[through, source] = _find_related_keys(through, target, source, instance, using)[1]
    if not action.startswith("post_"):
        return
    other_keys = pk_set
    if action == "post_clear":
        other_keys = instance.__dict__[_CLEARED_KEYS].pop((through, source), None)
    elif pk_set is not None:
        reference: Any = through._meta.get_field(target)
        other_keys = set(find_keys_by(model, reference.target_field, pk_set, using))
    with open_block(using) as block:
        for side, keys in ((type(instance), [instance.pk]), (model, other_keys or ())):
            if _shows_relations(side):
                block.note_after(side, keys)
