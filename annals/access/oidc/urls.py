"""The addresses of each provider that people may log in with."""

from __future__ import annotations

from django.conf import settings
from django.urls import URLPattern, path

from annals.access.oidc.login import Callback, Login, ended

urlpatterns: list[URLPattern] = []
for each in settings.OIDC_PROVIDERS:
    if each.login:
        urlpatterns += [
            path(
                f"{each.name}/login/",
                Login.as_view(provider=each.name),
                name=f"oidc-login-{each.name}",
            ),
            path(
                f"{each.name}/callback/",
                Callback.as_view(provider=each.name),
                name=f"oidc-callback-{each.name}",
            ),
            path(
                f"{each.name}/logout/",
                ended,
                {"provider": each.name},
                name=f"oidc-ended-{each.name}",
            ),
        ]
