"""What the login page offers."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.urls import reverse

from annals.access import sessions
from annals.access.oidc.backend import by_name

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


@register.simple_tag(takes_context=True)
def still_there(context: dict[str, Any]) -> dict[str, str] | None:
    """title and url of the provider where the person is still logged in, but not here any more;
    url: of its own logout page, empty where it names none."""
    name = getattr(context["request"], sessions.LEFT_BEHIND, None)
    if name is None:
        return None
    try:
        discovery = by_name(name)
    except LookupError:
        return None
    provider = discovery.provider
    address = discovery.known("end_session_endpoint")
    if address is None:
        return {"title": provider.title, "url": ""}
    return {
        "title": provider.title,
        "url": f"{address}?{urlencode({'client_id': provider.client_id})}",
    }
