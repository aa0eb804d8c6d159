"""The URLs of Annals under which people log in at each provider, and come back from it."""

from django.conf import settings
from django.urls import URLPattern, path

from annals.access.oidc.login import CallbackView, LoginView, end_provider_sessions

urlpatterns: list[URLPattern] = []
for provider in settings.OIDC_PROVIDERS:
    if provider.login:
        name = provider.name
        login, callback = LoginView.as_view(provider=name), CallbackView.as_view(provider=name)
        urlpatterns += [
            path(f"{name}/login/", login, name=f"oidc-login-{name}"),
            path(f"{name}/callback/", callback, name=f"oidc-callback-{name}"),
            path(
                f"{name}/logout/",
                end_provider_sessions,
                {"provider": name},
                name=f"oidc-ended-{name}",
            ),
        ]
