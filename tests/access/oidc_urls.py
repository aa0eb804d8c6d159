"""The URL patterns of Annals with one identity provider, `bank`."""

from django.urls import path

from annals.access.oidc.login import CallbackView, LoginView, end_provider_sessions
from annals.urls import urlpatterns as annals

urlpatterns = [
    path("oidc/bank/login/", LoginView.as_view(provider="bank"), name="oidc-login-bank"),
    path("oidc/bank/callback/", CallbackView.as_view(provider="bank"), name="oidc-callback-bank"),
    path("oidc/bank/logout/", end_provider_sessions, {"provider": "bank"}, name="oidc-ended-bank"),
    *annals,
]
