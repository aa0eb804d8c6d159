"""The URLs of Annals for each identity provider.

One URL sends a person to the provider to log in, and the provider sends the person back to a second
URL. With a third URL, the provider ends the sessions of a person.
"""

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
