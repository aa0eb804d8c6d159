"""Logins without an identity provider: passwords in the demo, and the break-glass link."""

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
from annals.access.client_address import get_client_address
from annals.access.journal.actions import BREAK_GLASS
from annals.access.models import BreakGlass
from annals.access.sessions import fetch_user

log = logging.getLogger(__name__)

BREAK_GLASS_BACKEND: Final = "annals.access.local_logins.BreakGlassLogins"
HOSTS: Final = "ANNALS_ALLOWED_HOSTS"


class DemoHasher(PBKDF2PasswordHasher):
    """A hasher that needs little time: everybody knows the passwords of the demo anyway.

    Django's own hasher can verify these hashes, if the demo later becomes an installation.
    """

    iterations = 1

    def must_update(self, encoded: str) -> bool:  # noqa: ARG002
        """Return False, so that Django does not hash a password again when somebody logs in.

        The database login of the web server has no right to change the column `password`. And a
        hash with many iterations, from Django's own hasher, must not become one with one iteration.
        """
        return False


class DemoLogins(ModelBackend):
    """The authentication backend for names and passwords in a demo."""

    def authenticate(self, _: Any, username: str = "", password: str = "") -> User | None:  # type: ignore[override]
        user = None if "\0" in username else fetch_user(username, column="username")
        is_authentic = user is not None and user.check_password(password)
        return user if is_authentic and self.user_can_authenticate(user) else None

    def get_user(self, user_id: Any) -> User | None:
        user = fetch_user(user_id)
        return user if self.user_can_authenticate(user) else None


class BreakGlassLogins(BaseBackend):
    """The authentication backend of sessions that began with a break-glass link."""

    def get_user(self, user_id: Any) -> User | None:
        """Return the user, or None if the break-glass login was switched off."""
        user = fetch_user(user_id)
        return user if user is not None and _is_break_glass(user) else None


def _is_break_glass(user: User) -> bool:
    return user.is_active and BreakGlass.objects.filter(user=user).exists()


# The name is part of the link's address, and must not look like a person's login, LOGIN@PROVIDER.
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def create_break_glass_login(name: str, now: datetime) -> User:
    """Create the break-glass superuser `name`. If this user exists, activate it again.

    Earlier login links and sessions of the user stop working.

    Raises:
        ValidationError: The name has characters that are not allowed, is the name of a login that
            is not a break-glass login, or differs from the name of an existing login only in upper
            and lower case, or in @PROVIDER at the end.
    """
    if not _NAME_PATTERN.fullmatch(name):
        raise ValidationError(
            "The name of a break-glass login must have 1 to 64 Latin letters, digits, dots, "
            "hyphens and underscores, and begin with a letter or a digit, such as breakglass."
        )
    user = User.objects.filter(username=name).first()
    if user is not None and not BreakGlass.objects.filter(user=user).exists():
        raise ValidationError(f"A login named {name} exists already. Choose a different name.")
    similar_users = User.objects.filter(
        Q(username__iexact=name) | Q(username__istartswith=f"{name}@")
    )
    if similar_users.exclude(username=name).exists():
        raise ValidationError(
            f"The name {name} can be confused with an existing login: the two names differ only in "
            "upper and lower case, or in @PROVIDER at the end. Choose a different name, for "
            "example breakglass."
        )
    with transaction.atomic():
        user = user or User(username=name)
        user.is_staff = user.is_superuser = user.is_active = True
        user.set_unusable_password()  # different each time, which ends earlier links and sessions
        user.save()
        BreakGlass.objects.update_or_create(user=user, defaults={"made": now})
    return user


def get_public_host() -> str | None:
    """Return the host under which browsers reach the web server, or None if it is not known.

    The host is the first entry of ANNALS_ALLOWED_HOSTS that has no wildcard. If the environment of
    this process does not set ANNALS_ALLOWED_HOSTS, the host is localhost in a demo, and otherwise
    not known: the environment of the web server can set ANNALS_ALLOWED_HOSTS.
    """
    if not settings.ANNALS.demo and not os.environ.get(HOSTS, "").strip():
        return None
    hosts = [host for host in settings.ANNALS.allowed_hosts if host.strip("*.") == host]
    return hosts[0] if hosts else None


def create_break_glass_link(user: User, now: datetime | None = None) -> str:
    """Create a link with which this user can log in once, within PASSWORD_RESET_TIMEOUT.

    Earlier links of the user stop working. The web server checks the link against a digest in the
    column `password`, so the web server and this process do not need a common key. The PostgreSQL
    role of the web server cannot write this column, so the web server cannot create such links.
    """
    made_at = (now or timezone.now()).timestamp()
    token = f"{int(made_at):x}-{secrets.token_urlsafe(32)}"
    user.password = UNUSABLE_PASSWORD_PREFIX + _hash_token(user, token)
    user.save(update_fields=["password"])
    scheme = "https" if settings.ANNALS.https else "http"
    path = reverse("break-glass", args=[user.get_username(), token])
    return f"{scheme}://{get_public_host() or 'localhost'}{path}"


def _hash_token(user: User, token: str) -> str:
    """Return the digest of a link's token. The column `password` has this digest.

    The digest also depends on `last_login`, the only column of the user that the web server can
    change. A login changes `last_login`, so the link becomes invalid.
    """
    text = f"{user.pk}\0{user.last_login}\0{token}"
    return hashlib.sha256(text.encode()).hexdigest()


def _is_valid_token(user: User, token: str) -> bool:
    """Return whether the token is from the user's newest link, and this link is still valid."""
    made_at, _dash, _random = token.partition("-")
    expected = UNUSABLE_PASSWORD_PREFIX + _hash_token(user, token)
    if not constant_time_compare(user.password, expected):
        return False
    return timezone.now().timestamp() - int(made_at, 16) <= settings.PASSWORD_RESET_TIMEOUT


def disable_break_glass_login(user: User) -> None:
    """Take away the rights of a break-glass login, and end its links and sessions."""
    user.is_staff = user.is_superuser = user.is_active = False
    user.set_unusable_password()  # which ends its sessions
    user.save()


@never_cache
def enter_by_link(request: HttpRequest, name: str, token: str) -> HttpResponse:
    """Show the page of a break-glass link, and log in when its button is pressed.

    Without the button, a program that merely fetches the address would use up the link.
    """
    context = {"title": _("Break-glass login"), "login": name}
    if request.method == "POST":
        with transaction.atomic():
            user = User.objects.select_for_update().filter(username=name).first()
            if user is not None and _is_break_glass(user) and _is_valid_token(user, token):
                setattr(request, BREAK_GLASS, True)  # for the journal
                auth.login(request, user, backend=BREAK_GLASS_BACKEND)
                request.session[BREAK_GLASS] = True  # marks the journal entries of the session
                metrics.BREAK_GLASS_LOGINS.inc()
                log.error("BREAK GLASS: %r logged in from %s", name, get_client_address(request))
                return HttpResponseRedirect(reverse("admin:index"))
        log.warning(
            "break-glass link of login %.150r refused: it is used, too old or wrong (client %s)",
            name,
            get_client_address(request),
        )
        context["refused"] = _("This link works once, for ten minutes. Make another one.")
    status = 403 if "refused" in context else 200
    return TemplateResponse(request, "access/break_glass.html", context, status=status).render()
