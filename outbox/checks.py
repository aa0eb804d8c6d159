"""Django's system checks of the outbox."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks

from outbox.conf import conf, settings_errors
from outbox.recorded import Recorded, RecordedQuerySet

TAG = "outbox"
MIDDLEWARE = "outbox.middleware.author_middleware"


def register() -> None:
    """Have `manage.py check` run the checks."""
    for check in (check_settings, check_managers, check_middleware):
        checks.register(check, TAG)


Found = list[checks.CheckMessage]


def check_settings(**_: Any) -> Found:
    """outbox.E001: settings.OUTBOX."""
    return settings_errors(conf, "outbox")


def check_managers(**_: Any) -> Found:
    """outbox.W002: the managers of each recorded model record changes of many rows."""
    recorded = [model for model in apps.get_models() if issubclass(model, Recorded)]
    return [error for model in recorded for error in _check_manager(model)]


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
