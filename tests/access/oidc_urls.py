"""Annals' addresses with those of a provider `bank` of a test, and of no other."""

from django.urls import path

from annals.access.oidc.login import Callback, Login, ended
from annals.urls import urlpatterns as annals

urlpatterns = [
    path("oidc/bank/login/", Login.as_view(provider="bank"), name="oidc-login-bank"),
    path("oidc/bank/callback/", Callback.as_view(provider="bank"), name="oidc-callback-bank"),
    path("oidc/bank/logout/", ended, {"provider": "bank"}, name="oidc-ended-bank"),
    *annals,
]
