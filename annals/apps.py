"""The annals app: wiring only."""

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class AnnalsConfig(AppConfig):
    name = "annals"

    def ready(self) -> None:
        from annals.access import roles

        # By the turn of auth, which is installed later, every app of ours has its permissions.
        post_migrate.connect(roles.receive, sender=apps.get_app_config("auth"))
