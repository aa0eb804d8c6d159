"""The access app: who may do what, how they log in, and the small tables that this needs."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "annals.access"
    label = "access"

    def ready(self) -> None:
        from django.contrib import admin

        from annals.access import attempts
        from annals.access.journal import operators
        from annals.access.passwords import LoginForm

        attempts.watch()
        operators.watch()
        admin.site.login_form = LoginForm
