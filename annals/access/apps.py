"""The access app: who may do what, how they log in, and the small tables that this needs."""

import sys

from django.apps import AppConfig
from django.conf import settings

from history.base.lazy import lazy


class AccessConfig(AppConfig):
    name = "annals.access"
    label = "access"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from history.base.signals import begins, looks_back
        from history.labels import mark_changed

        user_logged_out.connect(lazy("annals.access.sessions.on_logout"), weak=False)
        begins.connect(lazy("annals.access.journal.write.on_export"), weak=False)
        looks_back.connect(lazy("annals.access.journal.read.opened_before"), weak=False)
        mark_changed.connect(lazy("annals.access.journal.write.on_mark"), weak=False)
        if settings.ANNALS.need_to_know is not None:
            from history import need_to_know

            try:
                need_to_know.given()
            except need_to_know.RuleError as error:
                sys.exit(f"annals: {need_to_know.SETTING} is wrong: {error}. See docs/access.md.")
