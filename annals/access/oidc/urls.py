"""The addresses of each provider that people may log in with."""

from django.conf import settings
from django.urls import URLPattern, path

from annals.access.oidc.login import Callback, Login, ended

urlpatterns: list[URLPattern] = []
for each in settings.OIDC_PROVIDERS:
    if each.login:
        name = each.name
        login, callback = Login.as_view(provider=name), Callback.as_view(provider=name)
        urlpatterns += [
            path(f"{name}/login/", login, name=f"oidc-login-{name}"),
            path(f"{name}/callback/", callback, name=f"oidc-callback-{name}"),
            path(f"{name}/logout/", ended, {"provider": name}, name=f"oidc-ended-{name}"),
        ]
