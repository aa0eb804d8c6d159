"""The Django app `annals`.

After migrations it creates the groups of the roles, the logins of a demo, and the coming day
partitions of the access journal. It also registers Django's checks of the database server and of
the installation.
"""

from typing import Final

from django.apps import AppConfig, apps
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate

from history.common.lazy import import_lazily

RECEIVERS: Final = {
    "contenttypes": "annals.access.roles.create_groups_and_logins",
    "access": "annals.access.journal.days.create_coming_days",
}


class AnnalsConfig(AppConfig):
    name = "annals"

    def ready(self) -> None:
        register(
            import_lazily("annals.operations.server_checks.check_server_settings"), Tags.database
        )
        register(
            import_lazily("annals.operations.deploy_checks.check_first_hour"),
            Tags.security,
            deploy=True,
        )

        # The signal of contenttypes comes last, when the permissions of all apps exist.
        for app, receiver in RECEIVERS.items():
            post_migrate.connect(
                import_lazily(receiver), sender=apps.get_app_config(app), weak=False
            )
