"""Django's system checks of the outbox."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections, router

from outbox import bearer
from outbox.conf import conf
from outbox.errors import WrongSettings
from outbox.recorded import Kind, PartOf, Recorded, RecordedQuerySet

TAG = "outbox"
MIDDLEWARE = "outbox.middleware.author_middleware"


def register() -> None:
    """Have `manage.py check` run the checks; those of the database with `--database`."""
    checks.register(check_settings, TAG)
    checks.register(check_models, TAG)
    checks.register(check_middleware, TAG)
    checks.register(check_database, TAG)


Found = list[checks.CheckMessage]


def check_settings(**_: Any) -> Found:
    """outbox.E001: settings.OUTBOX. outbox.E005: the file of the tokens, if there is one."""
    hint = "See docs/outbox.md."
    try:
        file = conf().resend_token_file
    except WrongSettings as error:
        return [checks.Error(str(error), hint=hint, id="outbox.E001")]
    try:
        if file is not None:
            bearer.tokens(file)
    except WrongSettings as error:
        return [checks.Error(str(error), hint=hint, id="outbox.E005")]
    return []


def check_database(**_: Any) -> Found:
    """outbox.E002: the tables need PostgreSQL."""
    from outbox.models import Document

    alias = router.db_for_write(Document)
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return []
    return [
        checks.Error(
            f"The outbox needs PostgreSQL; the database {alias!r} is {vendor}.",
            hint="A router (DATABASE_ROUTERS) can send the app outbox to another database, but"
            " only changes in that one are in one transaction with their versions.",
            id="outbox.E002",
        )
    ]


def check_models(**_: Any) -> Found:
    """outbox.E003: each recorded model says how; outbox.E004: its entity has a topic; outbox.W002:
    its managers record changes of many rows; outbox.W003: it shares no row with another model."""
    try:
        topics = conf().topics
    except WrongSettings:
        return []
    return [error for model in _recorded() for error in _check_model(model, topics)]


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


def _recorded() -> Iterable[type[Recorded]]:
    return (model for model in apps.get_models() if issubclass(model, Recorded))


def _check_model(model: type[Recorded], topics: Iterable[str]) -> Found:
    kind = getattr(model, "recorded_as", None)
    if isinstance(kind, PartOf):
        return _check_part(model, kind)
    if not isinstance(kind, Kind):
        hint = 'Add recorded_as = Kind("name-of-the-entity") to the class.'
        return [checks.Error("recorded_as is missing.", hint=hint, obj=model, id="outbox.E003")]
    if kind.entity not in topics:
        hint = f'Add it to OUTBOX["TOPICS"], which has {", ".join(sorted(topics))}.'
        text = f"The entity {kind.entity!r} has no topic."
        return [checks.Error(text, hint=hint, obj=model, id="outbox.E004")]
    return _check_manager(model)


def _check_part(model: type[Recorded], kind: PartOf) -> Found:
    keys = {
        field.name
        for field in model._meta.concrete_fields
        if field.related_model and issubclass(cast(type[Any], field.related_model), Recorded)
    }
    if kind.whole in keys:
        return _check_manager(model)
    text = f"It is a part of {kind.whole!r}, which is no foreign key to a model that is recorded."
    hint = f"Its foreign keys to recorded models: {', '.join(sorted(keys)) or 'none'}."
    return [checks.Error(text, hint=hint, obj=model, id="outbox.E003")]


def _check_manager(model: type[Recorded]) -> Found:
    managers = (model._default_manager, *model._meta.managers)
    blind = {
        each.name: None
        for each in managers
        if not isinstance(each.get_queryset(), RecordedQuerySet)
    }
    if not blind:
        return _check_family(model)
    names = ", ".join(map(str, blind))
    text = f"bulk_create(), bulk_update() and update() of its managers record nothing: {names}."
    hint = "Make each manager from RecordedQuerySet, or from a class that extends it."
    return [checks.Warning(text, hint=hint, obj=model, id="outbox.W002"), *_check_family(model)]


def _check_family(model: type[Recorded]) -> Found:
    """Multi-table inheritance: one row in two tables."""
    text = "A change by {} is not recorded as a change of {}, though they share a row."
    hint = "Change the rows by one of the two models only, or call record() of the other one."
    return [
        checks.Warning(
            text.format(model.__name__, parent.__name__), hint=hint, obj=model, id="outbox.W003"
        )
        for parent, pointer in model._meta.parents.items()
        if pointer is not None and issubclass(parent, Recorded)
    ]
