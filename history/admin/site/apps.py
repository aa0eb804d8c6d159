"""Makes AnnalsSite the default admin site."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class ScreensConfig(SimpleAdminConfig):
    default_site = "history.admin.site.admin_site.AnnalsSite"

    def ready(self) -> None:
        """Register the checks of Django's admin. They load the screens before they check them."""
        register(check_dependencies, Tags.admin)
        register(_check_screens, Tags.admin)


def _check_screens(**options: Any) -> list[CheckMessage]:
    # Importing the URLs registers the screens. Before that there is nothing to check.
    import_module(settings.ROOT_URLCONF)
    messages: list[CheckMessage] = check_admin_app(**options)
    return messages
