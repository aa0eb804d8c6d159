"""The configuration of the app `ways`."""

from django.apps import AppConfig


class WaysConfig(AppConfig):
    name = "tests.outbox.ways"
    label = "ways"
    default_auto_field = "django.db.models.BigAutoField"
