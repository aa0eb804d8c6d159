"""Template tags of the pages for login and logout."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.urls import reverse

from annals.access import sessions
from annals.access.oidc.backend import find_login_provider

register = template.Library()


@register.simple_tag
def list_login_providers(following: str) -> list[dict[str, str]]:
    """Return the title and url of each provider where people can log in.

    After the login, the browser goes to `following`.
    """
    back = urlencode({"next": following})
    return [
        {"title": provider.title, "url": f"{reverse(f'oidc-login-{provider.name}')}?{back}"}
        for provider in settings.OIDC_PROVIDERS
        if provider.login
    ]


@register.simple_tag
def is_demo() -> bool:
    """Return whether this installation is a demo."""
    return bool(settings.ANNALS.demo)


@register.simple_tag(takes_context=True)
def find_open_provider(context: dict[str, Any]) -> dict[str, str] | None:
    """Return the title and url of the provider where the person is still logged in, or None.

    The url is the provider's logout page, or empty if the provider does not name one.
    """
    name = getattr(context["request"], sessions.OPEN_PROVIDER, None)
    if name is None:
        return None
    try:
        discovery = find_login_provider(name)
    except LookupError:
        return None
    provider = discovery.provider
    address = discovery.get_known_endpoint("end_session_endpoint")
    if address is None:
        return {"title": provider.title, "url": ""}
    return {
        "title": provider.title,
        "url": f"{address}?{urlencode({'client_id': provider.client_id})}",
    }
