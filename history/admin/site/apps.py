"""Puts the support screens in the place of Django's default admin site."""

from django.contrib.admin.apps import SimpleAdminConfig


class ScreensConfig(SimpleAdminConfig):
    default_site = "history.admin.site.admin_site.AnnalsSite"
