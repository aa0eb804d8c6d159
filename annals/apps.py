"""The Django app of this package: creates the roles, and the days of the access journal,
after migrations; checks the server's settings."""

from django.apps import AppConfig, apps
from django.core.checks import Tags, register
from django.db.models.signals import post_migrate


class AnnalsConfig(AppConfig):
    name = "annals"

    def ready(self) -> None:
        from annals.access import roles
        from annals.access.journal import days
        from annals.observe import server_checks

        register(server_checks.server_settings, Tags.database)

        # contenttypes is installed after our apps and after auth, so the permissions of all of
        # them exist when its signal arrives.
        post_migrate.connect(roles.receive, sender=apps.get_app_config("contenttypes"))
        post_migrate.connect(days.create, sender=apps.get_app_config("access"))
