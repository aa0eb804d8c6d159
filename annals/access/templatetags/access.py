"""What the login page offers."""

from __future__ import annotations

from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.urls import reverse

register = template.Library()


@register.simple_tag
def login_providers(following: str) -> list[dict[str, str]]:
    """title and url of each provider that people may log in with; following: where to go then."""
    back = urlencode({"next": following})
    return [
        {"title": each.title, "url": f"{reverse(f'oidc-login-{each.name}')}?{back}"}
        for each in settings.OIDC_PROVIDERS
        if each.login
    ]


@register.simple_tag
def demo() -> bool:
    """Whether this is a demo."""
    return bool(settings.ANNALS.demo)
