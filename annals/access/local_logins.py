"""Logins without an identity provider."""

import logging
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator as tokens
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from annals import metrics
from annals.access.address import address_of
from annals.access.journal.words import BREAK_GLASS
from annals.access.models import BreakGlass
from annals.access.sessions import login

log = logging.getLogger(__name__)

BACKEND: Final = "annals.access.local_logins.BreakGlassLogins"


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


def make_break_glass(name: str, now: datetime) -> User:
    """A superuser of this name, made or switched on again; its earlier links and its sessions end.
    Raises ValidationError where the name belongs to another login."""
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User(username=name)
    elif not BreakGlass.objects.filter(user=user).exists():
        raise ValidationError(_("There is another login of this name."))
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_unusable_password()  # another one each time
    user.save()
    BreakGlass.objects.update_or_create(user=user, defaults={"made": now})
    return user


def link(user: User) -> str:
    """A link that logs this login in, until PASSWORD_RESET_TIMEOUT or its next login. Its host is
    the first one of ANNALS_ALLOWED_HOSTS that is a name or an address."""
    hosts = [each for each in settings.ANNALS.allowed_hosts if each.strip("*.") == each]
    scheme = "https" if settings.ANNALS.https else "http"
    path = reverse("break-glass", args=[user.get_username(), tokens.make_token(user)])
    return f"{scheme}://{hosts[0] if hosts else 'localhost'}{path}"


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
            if user is not None and _is_break_glass(user) and tokens.check_token(user, token):
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
