"""Django's system checks of the outbox: they name what cannot be recorded."""

from collections.abc import Iterator
from typing import Any, cast

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from outbox.block import concrete
from outbox.conf import conf, settings_errors
from outbox.errors import WrongSettings
from outbox.kinds import Kind, PartOf
from outbox.recorded import Recorded, RecordedQuerySet

TAG = "outbox"
MIDDLEWARE = "outbox.middleware.author_middleware"

Found = list[checks.CheckMessage]


def register() -> None:
    """Have `manage.py check` run the checks."""
    for check in (check_settings, check_models, check_managers, check_middleware):
        checks.register(check, TAG)


def check_settings(**_: Any) -> Found:
    """outbox.E001: settings.OUTBOX."""
    return settings_errors(conf, "outbox")


def check_models(**_: Any) -> Found:
    """outbox.E004 to E007, outbox.W003: how the models are recorded."""
    return [error for model in _recorded() for error in check_model(model)]


def check_model(model: type[Recorded]) -> Found:
    """What cannot be recorded of one model."""
    if model._meta.proxy:
        return list(_check_proxy(model))
    kind = getattr(model, "recorded_as", None)
    if model._meta.parents:
        # Whatever else is wrong, it must become another model.
        return [_inheritance_error(model)]
    if isinstance(kind, Kind):
        return [*_check_kind(model, kind), *_check_topic(model, kind), *_check_unique(model, kind)]
    if isinstance(kind, PartOf):
        return list(_check_part(model, kind))
    text = "recorded_as must be a Kind or a PartOf."
    hint = 'Write recorded_as = Kind("entity") into the model.'
    return [checks.Error(text, hint=hint, obj=model, id="outbox.E004")]


def check_managers(**_: Any) -> Found:
    """outbox.W002, outbox.W004: the managers of each recorded model record changes of many rows."""
    return [error for model in _recorded() for error in check_managers_of(model)]


def check_managers_of(model: type[Recorded]) -> Found:
    """Which managers of one model record nothing."""
    return [*_check_manager(model), *_check_base(model)]


def check_middleware(**_: Any) -> Found:
    """outbox.W001: without the middleware, versions have no author."""
    if not apps.is_installed("django.contrib.auth") or MIDDLEWARE in settings.MIDDLEWARE:
        return []
    return [
        checks.Warning(
            "Versions that requests record have no author.",
            hint=f"Add {MIDDLEWARE} to MIDDLEWARE, after AuthenticationMiddleware.",
            id="outbox.W001",
        )
    ]


def _recorded() -> list[type[Recorded]]:
    return [model for model in apps.get_models() if issubclass(model, Recorded)]


def _inheritance_error(model: type[Recorded]) -> checks.CheckMessage:
    parents = ", ".join(parent._meta.label for parent in model._meta.parents)
    return checks.Error(
        f"Its rows are in two tables, its own and that of {parents} (multi-table inheritance): a"
        " change of one cannot be recorded as a change of the other.",
        hint="Make the parent abstract, or refer to it by a OneToOneField and make one of the two"
        " a PartOf the other.",
        obj=model,
        id="outbox.E005",
    )


def _check_proxy(model: type[Recorded]) -> Iterator[checks.CheckMessage]:
    rows = concrete(model)
    if not issubclass(rows, Recorded):
        text = f"{rows._meta.label}, whose rows it has, is not Recorded: its changes are lost."
        hint = f"Make {rows._meta.label} a subclass of Recorded, not its proxy."
    elif getattr(model, "recorded_as", None) is not getattr(rows, "recorded_as", None):
        text = f"A proxy is recorded as {rows._meta.label} is; its own recorded_as is not used."
        hint = "Remove recorded_as from the proxy."
    else:
        return
    yield checks.Error(text, hint=hint, obj=model, id="outbox.E006")


def _check_kind(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    if kind.id == "pk" and len(model._meta.pk_fields) > 1:
        text = "A composite primary key is not an id of a document."
        hint = 'Name the attribute that is: Kind(..., id="number").'
        yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")
    for option, name in (("id", kind.id), ("parent", kind.parent)):
        if name is None or name == "pk":
            continue
        field = _field(model, name)
        if field is None and not hasattr(model, name):
            text = f"Kind({option}={name!r}): the model has no such attribute."
        elif field is not None and field.is_relation and name == field.name:
            text = f"Kind({option}={name!r}) is another row, not its id."
        elif field is None and callable(getattr(model, name)):
            text = f"Kind({option}={name!r}) is a method, not an attribute."
        else:
            continue
        hint = "Name a field, a column as order_id, or a property."
        yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")


def _check_topic(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    try:
        topics = conf().topics
    except WrongSettings:
        return  # outbox.E001 says so
    if kind.entity not in topics:
        text = f"settings.OUTBOX: TOPICS has no topic for {kind.entity!r}."
        hint = f"It has {', '.join(sorted(topics)) or 'none'}. No row of the model can be saved."
        yield checks.Error(text, hint=hint, obj=model, id="outbox.E007")


def _check_unique(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    field = _field(model, kind.id)
    if field is None or (field.is_relation and kind.id == field.name):
        return
    alone = [
        set(each.fields)
        for each in model._meta.constraints
        if isinstance(each, models.UniqueConstraint) and each.condition is None
    ]
    together = [set(names) for names in model._meta.unique_together]
    if not field.unique and {field.name} not in (*alone, *together):
        text = f"Kind(id={kind.id!r}): two rows can have one id, and would be one document."
        hint = "Give the field unique=True."
        yield checks.Warning(text, hint=hint, obj=model, id="outbox.W003")


def _check_part(model: type[Recorded], kind: PartOf) -> Iterator[checks.CheckMessage]:
    field = _field(model, kind.whole)
    whole = getattr(field, "related_model", None)
    if not isinstance(field, models.ForeignKey) or kind.whole != field.name:
        text = f"PartOf({kind.whole!r}) must name a ForeignKey of the model."
        hint = "A generic or many-to-many relation has no one whole: call record() of the whole."
    elif not isinstance(whole, type) or not issubclass(concrete(whole), Recorded):
        text = f"PartOf({kind.whole!r}): {getattr(whole, '__name__', whole)} is not Recorded."
        hint = "Make the model of the whole a subclass of Recorded."
    elif _is_part_of_itself(model):
        text = f"PartOf({kind.whole!r}): the wholes form a circle; no model of it is a Kind."
        hint = "Give one of the models a Kind."
    else:
        return
    yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")


def _is_part_of_itself(model: type[models.Model]) -> bool:
    seen: set[type[models.Model]] = set()
    while isinstance(kind := getattr(model, "recorded_as", None), PartOf):
        field = _field(model, kind.whole)
        if model in seen or field is None:
            return model in seen
        seen.add(model)
        model = concrete(cast(type[models.Model], field.related_model))
    return False


def _field(model: type[models.Model], name: str) -> Any:
    """The field of this name or with this column's attribute, or None."""
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        named = (field for field in model._meta.concrete_fields if field.attname == name)
        return next(named, None)


def _check_manager(model: type[Recorded]) -> Found:
    managers = (model._default_manager, *model._meta.managers)
    blind = {
        each.name: None
        for each in managers
        if not isinstance(each.get_queryset(), RecordedQuerySet)
    }
    if not blind:
        return []
    names = ", ".join(map(str, blind))
    text = f"bulk_create(), bulk_update() and update() of its managers record nothing: {names}."
    hint = "Make each manager from RecordedQuerySet, or from a class that extends it."
    return [checks.Warning(text, hint=hint, obj=model, id="outbox.W002")]


def _check_base(model: type[Recorded]) -> Found:
    refers = any(field.many_to_one for field in model._meta.concrete_fields)
    if not refers or isinstance(model._base_manager.get_queryset(), RecordedQuerySet):
        return []
    text = "add() and set() of its related managers, as order.items.add(item), record nothing."
    hint = (
        "Set Meta.base_manager_name to a manager that is made from RecordedQuerySet and leaves no"
        " rows out."
    )
    return [checks.Warning(text, hint=hint, obj=model, id="outbox.W004")]
