"""The annals app: wiring only."""

from django.apps import AppConfig


class AnnalsConfig(AppConfig):
    name = "annals"
