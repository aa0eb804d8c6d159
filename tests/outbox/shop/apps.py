"""The configuration of the app `shop`."""

from django.apps import AppConfig


class ShopConfig(AppConfig):
    name = "tests.outbox.shop"
    label = "shop"
    default_auto_field = "django.db.models.BigAutoField"
