"""What the login page offers."""

from typing import Any
from urllib.parse import urlencode

from django import template
from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

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
def session_over(context: dict[str, Any]) -> str:
    """Why the login page is shown, where a session has ended; else empty."""
    why = context["request"].GET.get(sessions.OVER)
    if why == sessions.IDLE:
        minutes = settings.ANNALS.session_idle_minutes
        text = ngettext(
            "Nothing was done here for {n} minute, so the login has ended. "
            "Log in, and go on with the same page.",
            "Nothing was done here for {n} minutes, so the login has ended. "
            "Log in, and go on with the same page.",
            minutes,
        )
        return text.format(n=minutes)
    if why == sessions.OLD:
        hours = settings.ANNALS.session_hours
        text = ngettext(
            "A login lasts {n} hour, and this one has ended. Log in, and go on with the same page.",
            "A login lasts {n} hours, and this one has ended. "
            "Log in, and go on with the same page.",
            hours,
        )
        return text.format(n=hours)
    if why == sessions.LEFT:
        return _(
            "The identity provider has ended your session. Log in, and go on with the same page."
        )
    return ""


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
