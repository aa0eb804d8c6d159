"""The settings of mypy's plugin for Django: it needs every app that has models. Nothing runs with
them."""

from annals.settings import *  # noqa: F403
from annals.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "outbox", "tests.outbox.shop"]
