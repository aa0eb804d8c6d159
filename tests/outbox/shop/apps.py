"""The app of the service."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.outbox.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
