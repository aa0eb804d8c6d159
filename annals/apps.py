"""The Django app of this package: creates the roles, and the days of the access journal,
after migrations; checks the server's settings, and what an installation lacks."""

from typing import Final

from django.apps import AppConfig, apps
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate

from history.base.lazy import lazy

RECEIVERS: Final = {
    "contenttypes": "annals.access.roles.receive",
    "access": "annals.access.journal.days.create",
}


class AnnalsConfig(AppConfig):
    name = "annals"

    def ready(self) -> None:
        register(lazy("annals.observe.server_checks.server_settings"), Tags.database)
        register(lazy("annals.operations.deploy_checks.first_hour"), Tags.security, deploy=True)

        # contenttypes is last, so the permissions of all apps exist when its signal arrives.
        for app, receiver in RECEIVERS.items():
            post_migrate.connect(lazy(receiver), sender=apps.get_app_config(app), weak=False)
