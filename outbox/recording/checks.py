"""The system checks of the outbox, which find models whose changes cannot be recorded."""

from collections.abc import Iterator
from typing import Any, cast

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldDoesNotExist
from django.db import models

from outbox.conf import check_conf, conf
from outbox.errors import WrongSettingsError
from outbox.recorded import Recorded, RecordedQuerySet
from outbox.recording.kinds import Kind, PartOf
from outbox.recording.recording_block import get_concrete_model

CHECK_TAG = "outbox"
MIDDLEWARE = "outbox.middleware.author_middleware"

Problems = list[checks.CheckMessage]


def register_checks() -> None:
    """Register the checks with `manage.py check`."""
    for check in (check_settings, check_models, check_managers, check_middleware):
        checks.register(check, CHECK_TAG)


def check_settings(**_: Any) -> Problems:
    """Check settings.OUTBOX (outbox.E001)."""
    return check_conf(conf, "outbox")


def check_models(**_: Any) -> Problems:
    """Check how the models are recorded (outbox.E004 to E007, outbox.W003)."""
    return [error for model in _list_recorded_models() for error in check_recorded_model(model)]


def check_recorded_model(model: type[Recorded]) -> Problems:
    """Return the problems of one recorded model."""
    if model._meta.proxy:
        return list(_check_proxy(model))
    kind = getattr(model, "recorded_as", None)
    if model._meta.parents:
        # Other problems are not reported, because the model has to change first.
        return [_make_inheritance_error(model)]
    if isinstance(kind, Kind):
        return [*_check_kind(model, kind), *_check_topic(model, kind), *_check_unique(model, kind)]
    if isinstance(kind, PartOf):
        return list(_check_part(model, kind))
    text = "recorded_as must be a Kind or a PartOf."
    hint = 'Write recorded_as = Kind("entity") into the model.'
    return [checks.Error(text, hint=hint, obj=model, id="outbox.E004")]


def check_managers(**_: Any) -> Problems:
    """Check that the managers of recorded models record bulk changes (outbox.W002, W004)."""
    return [error for model in _list_recorded_models() for error in check_model_managers(model)]


def check_model_managers(model: type[Recorded]) -> Problems:
    """Return the problems of the managers of one model."""
    return [*_check_manager(model), *_check_base_manager(model)]


def check_middleware(**_: Any) -> Problems:
    """Warn if the middleware is not installed: versions would not have an author (outbox.W001)."""
    if not apps.is_installed("django.contrib.auth") or MIDDLEWARE in settings.MIDDLEWARE:
        return []
    return [
        checks.Warning(
            "Versions that are recorded during HTTP requests have no author.",
            hint=f"Add {MIDDLEWARE} to MIDDLEWARE, after AuthenticationMiddleware.",
            id="outbox.W001",
        )
    ]


def _list_recorded_models() -> list[type[Recorded]]:
    return [model for model in apps.get_models() if issubclass(model, Recorded)]


def _make_inheritance_error(model: type[Recorded]) -> checks.CheckMessage:
    parents = ", ".join(parent._meta.label for parent in model._meta.parents)
    return checks.Error(
        f"The rows of this model are in two tables, its own and the table of {parents} (multi-table"
        " inheritance): a change in one cannot be recorded as a change in the other.",
        hint="Make the parent abstract, or refer to it by a OneToOneField and make one of the two"
        " a PartOf the other.",
        obj=model,
        id="outbox.E005",
    )


def _check_proxy(model: type[Recorded]) -> Iterator[checks.CheckMessage]:
    rows = get_concrete_model(model)
    if not issubclass(rows, Recorded):
        text = (
            f"This proxy is of {rows._meta.label}, which is not Recorded: changes are not recorded."
        )
        hint = f"Make {rows._meta.label} a subclass of Recorded, instead of its proxy."
    elif getattr(model, "recorded_as", None) is not getattr(rows, "recorded_as", None):
        text = f"This proxy is recorded like {rows._meta.label}: its own recorded_as is not used."
        hint = "Remove recorded_as from the proxy."
    else:
        return
    yield checks.Error(text, hint=hint, obj=model, id="outbox.E006")


def _check_kind(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    if kind.id == "pk" and len(model._meta.pk_fields) > 1:
        text = "A composite primary key cannot be the id of a document."
        hint = 'Name the attribute with the id, such as Kind(..., id="number").'
        yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")
    for option, name in (("id", kind.id), ("parent", kind.parent)):
        problem = None if name in (None, "pk") else _explain_wrong_attribute(model, name)
        if problem is not None:
            text = f"Kind({option}={name!r}): {problem}."
            hint = "Name a field, a column such as order_id, or a property."
            yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")


def _explain_wrong_attribute(model: type[Recorded], name: str) -> str | None:
    """Return why an attribute of a model cannot be an id, or None if it can."""
    field = _find_field(model, name)
    if field is None and not hasattr(model, name):
        return "the model does not have this attribute"
    if field is not None and field.is_relation and name == field.name:
        return "this attribute is another row, not the id of that row"
    if field is None and callable(getattr(model, name)):
        return "this attribute is a method"
    return None


def _check_topic(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    try:
        topics = conf().topics
    except WrongSettingsError:
        return  # outbox.E001 reports wrong settings
    if kind.entity not in topics:
        text = f"settings.OUTBOX: TOPICS has no topic for {kind.entity!r}, so no row can be saved."
        hint = f"TOPICS has: {', '.join(sorted(topics)) or 'no kind'}."
        yield checks.Error(text, hint=hint, obj=model, id="outbox.E007")


def _check_unique(model: type[Recorded], kind: Kind) -> Iterator[checks.CheckMessage]:
    field = _find_field(model, kind.id)
    if field is None or (field.is_relation and kind.id == field.name):
        return
    unique_fields = [
        set(constraint.fields)
        for constraint in model._meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and constraint.condition is None
    ]
    unique_together = [set(names) for names in model._meta.unique_together]
    if not field.unique and {field.name} not in (*unique_fields, *unique_together):
        text = f"Kind(id={kind.id!r}): two rows can have the same id, and would be one document."
        hint = "Give the field unique=True."
        yield checks.Warning(text, hint=hint, obj=model, id="outbox.W003")


def _check_part(model: type[Recorded], kind: PartOf) -> Iterator[checks.CheckMessage]:
    field = _find_field(model, kind.whole)
    whole = getattr(field, "related_model", None)
    if not isinstance(field, models.ForeignKey) or kind.whole != field.name:
        text = f"PartOf({kind.whole!r}) must name a ForeignKey of the model."
        hint = "A generic or many-to-many relation has no single whole: call record() of the whole."
    elif not isinstance(whole, type) or not issubclass(get_concrete_model(whole), Recorded):
        text = f"PartOf({kind.whole!r}): {getattr(whole, '__name__', whole)} is not Recorded."
        hint = "Make the model of the whole a subclass of Recorded."
    elif _is_part_of_itself(model):
        text = f"PartOf({kind.whole!r}): the models form a circle in which none is a Kind."
        hint = "Give one of the models a Kind."
    else:
        return
    yield checks.Error(text, hint=hint, obj=model, id="outbox.E004")


def _is_part_of_itself(model: type[models.Model]) -> bool:
    seen: set[type[models.Model]] = set()
    while isinstance(kind := getattr(model, "recorded_as", None), PartOf):
        field = _find_field(model, kind.whole)
        if model in seen or field is None:
            return model in seen
        seen.add(model)
        model = get_concrete_model(cast(type[models.Model], field.related_model))
    return False


def _find_field(model: type[models.Model], name: str) -> Any:
    """Return the field with this name or attribute (such as order_id), or None."""
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        same_column = (field for field in model._meta.concrete_fields if field.attname == name)
        return next(same_column, None)


def _check_manager(model: type[Recorded]) -> Problems:
    managers = (model._default_manager, *model._meta.managers)
    silent_names = {
        manager.name: None
        for manager in managers
        if not isinstance(manager.get_queryset(), RecordedQuerySet)
    }
    if not silent_names:
        return []
    names = ", ".join(map(str, silent_names))
    text = f"bulk_create(), bulk_update() and update() are not recorded by these managers: {names}."
    hint = "Make each manager from RecordedQuerySet, or from a class that extends it."
    return [checks.Warning(text, hint=hint, obj=model, id="outbox.W002")]


def _check_base_manager(model: type[Recorded]) -> Problems:
    has_foreign_key = any(field.many_to_one for field in model._meta.concrete_fields)
    if not has_foreign_key or isinstance(model._base_manager.get_queryset(), RecordedQuerySet):
        return []
    text = "add() and set() of related managers, as order.items.add(item), are not recorded."
    hint = (
        "Set Meta.base_manager_name to a manager that is made from RecordedQuerySet and hides no"
        " rows."
    )
    return [checks.Warning(text, hint=hint, obj=model, id="outbox.W004")]
