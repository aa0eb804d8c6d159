"""Logins without an identity provider."""

import hashlib
import logging
import os
import re
import secrets
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX, PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from annals import metrics
from annals.access.address import address_of
from annals.access.journal.words import BREAK_GLASS
from annals.access.models import BreakGlass
from annals.access.sessions import login

log = logging.getLogger(__name__)

BACKEND: Final = "annals.access.local_logins.BreakGlassLogins"
HOSTS: Final = "ANNALS_ALLOWED_HOSTS"


class DemoHasher(PBKDF2PasswordHasher):
    """Hashes at once, because everybody knows the passwords. Outside of a demo Django's own hasher
    verifies what it made."""

    iterations = 1

    def must_update(self, encoded: str) -> bool:  # noqa: ARG002
        """A login stores no new hash: the web may change no password, and a real one stays slow."""
        return False


class DemoLogins(ModelBackend):
    """Names and passwords, in a demo. Django would make its query anew for each request."""

    def authenticate(self, _: Any, username: str = "", password: str = "") -> User | None:  # type: ignore[override]
        user = None if "\0" in username else login(username, by="username")
        known = user is not None and user.check_password(password)
        return user if known and self.user_can_authenticate(user) else None

    def get_user(self, user_id: Any) -> User | None:
        user = login(user_id)
        return user if self.user_can_authenticate(user) else None


class BreakGlassLogins(BaseBackend):
    """Sessions that began with a link."""

    def get_user(self, user_id: Any) -> User | None:
        """The user, unless it was switched off."""
        user = login(user_id)
        return user if user is not None and _is_break_glass(user) else None


def _is_break_glass(user: User) -> bool:
    return user.is_active and BreakGlass.objects.filter(user=user).exists()


# A name is part of the link's address, and must not read like a provider's person, who is called
# `login@provider`.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def make_break_glass(name: str, now: datetime) -> User:
    """Make a superuser of this name, or switch it on again; its earlier links and sessions end.

    Raises:
        ValidationError: the name has other characters than it may have, or is another login's.
    """
    if not _NAME.fullmatch(name):
        raise ValidationError(
            "The name of a break-glass login has 1 to 64 Latin letters, digits, dots, hyphens "
            "and underscores, and begins with a letter or a digit, as breakglass."
        )
    user = User.objects.filter(username=name).first()
    if user is not None and not BreakGlass.objects.filter(user=user).exists():
        raise ValidationError(f"There is another login of the name {name}. Choose another name.")
    others = User.objects.filter(Q(username__iexact=name) | Q(username__istartswith=f"{name}@"))
    if others.exclude(username=name).exists():
        raise ValidationError(
            f"There is a person whose login reads like {name}. Choose another name, as breakglass."
        )
    with transaction.atomic():
        user = user or User(username=name)
        user.is_staff = user.is_superuser = user.is_active = True
        user.set_unusable_password()  # another one each time
        user.save()
        BreakGlass.objects.update_or_create(user=user, defaults={"made": now})
    return user


def public_host() -> str | None:
    """Return the host under which browsers reach the web, or None if the settings name none.

    It is the first of ANNALS_ALLOWED_HOSTS that is a name or an address. Outside the demo the
    default, which is this machine, is not an answer: the web may have another one.
    """
    if not settings.ANNALS.demo and not os.environ.get(HOSTS, "").strip():
        return None
    hosts = [host for host in settings.ANNALS.allowed_hosts if host.strip("*.") == host]
    return hosts[0] if hosts else None


def link(user: User, now: datetime | None = None) -> str:
    """Make a link that logs this login in once, within PASSWORD_RESET_TIMEOUT; earlier ones end.

    The web recognises it by a digest in the place of the password, which the web's database login
    cannot write. So the link needs no key that this process and the web would have to share.
    """
    made = (now or timezone.now()).timestamp()
    token = f"{int(made):x}-{secrets.token_urlsafe(32)}"
    user.password = UNUSABLE_PASSWORD_PREFIX + _digest(user, token)
    user.save(update_fields=["password"])
    scheme = "https" if settings.ANNALS.https else "http"
    path = reverse("break-glass", args=[user.get_username(), token])
    return f"{scheme}://{public_host() or 'localhost'}{path}"


def _digest(user: User, token: str) -> str:
    """Return what is stored of a link's token. A login changes `last_login`, and so ends the link:
    the web may change nothing else of this user."""
    text = f"{user.pk}\0{user.last_login}\0{token}"
    return hashlib.sha256(text.encode()).hexdigest()


def _opens(user: User, token: str) -> bool:
    """Return whether this is the token of the user's newest link, not used and not too old."""
    made, _dash, _random = token.partition("-")
    expected = UNUSABLE_PASSWORD_PREFIX + _digest(user, token)
    if not constant_time_compare(user.password, expected):
        return False
    return timezone.now().timestamp() - int(made, 16) <= settings.PASSWORD_RESET_TIMEOUT


def switch_off(user: User) -> None:
    """No link lets this login in any more, its sessions end, and it has no rights."""
    user.is_staff = user.is_superuser = user.is_active = False
    user.set_unusable_password()  # which ends its sessions
    user.save()


@never_cache
def enter(request: HttpRequest, name: str, token: str) -> HttpResponse:
    """The page of a link has a button, so that what only fetches addresses does not use it up."""
    context = {"title": _("Break-glass login"), "login": name}
    if request.method == "POST":
        with transaction.atomic():
            user = User.objects.select_for_update().filter(username=name).first()
            if user is not None and _is_break_glass(user) and _opens(user, token):
                setattr(request, BREAK_GLASS, True)  # for the journal
                auth.login(request, user, backend=BACKEND)
                request.session[BREAK_GLASS] = True  # the journal says so at each look
                metrics.BREAK_GLASS_LOGINS.inc()
                log.error("BREAK GLASS: %r logged in from %s", name, address_of(request))
                return HttpResponseRedirect(reverse("admin:index"))
        log.warning("break-glass link of %.150r refused at %s", name, address_of(request))
        context["refused"] = _("This link works once, for ten minutes. Make another one.")
    status = 403 if "refused" in context else 200
    return TemplateResponse(request, "access/break_glass.html", context, status=status).render()
