"""The access app: who may do what, how they log in, and the small tables that this needs."""

import sys

from django.apps import AppConfig


class AccessConfig(AppConfig):
    name = "annals.access"
    label = "access"

    def ready(self) -> None:
        from django.contrib import admin

        from annals.access import attempts, deletion, quota, sessions
        from annals.access.journal import operators
        from annals.access.passwords import LoginForm
        from history.need_to_know import rule

        attempts.watch()
        deletion.watch()
        operators.watch()
        quota.watch()
        sessions.watch()
        try:
            rule.given()
        except rule.RuleError as error:
            sys.exit(f"annals: {rule.SETTING} is wrong: {error}. See docs/access.md.")
        admin.site.login_form = LoginForm
