"""Local passwords: in demo mode, and of the break-glass superuser. All others log in elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from annals import metrics
from annals.access import attempts
from annals.access.address import within
from annals.access.journal.words import BREAK_GLASS
from annals.access.models import BreakGlass
from history.logins import login
from history.shares import BusyError, Share

log = logging.getLogger(__name__)

# A hash takes all of a core for a third of a second: of 16 threads of a process 3 hash passwords or
# wait for that, and as many for operators, whose login nobody elsewhere may keep out.
HASHING: Final = {"operators": Share(1), "others": Share(1)}


class Passwords(ModelBackend):
    """Checks a password if passwords may be used. Each attempt counts as a failure before it is
    hashed, and nothing is hashed while it has to wait; a success takes its count back.

    Raises history.shares.BusyError while the process hashes others; that counts as no attempt.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **_: Any,
    ) -> Any:
        if username is None or password is None or not _any_works():
            return None
        wait = attempts.wait_of(request, username)  # refused for the price of one query
        user = None
        if not wait:
            with _hashing(request):
                wait = attempts.begin(request, username)
                user = None if wait else self._owner(username, password)
        if request is not None:
            request.annals_wait = wait  # type: ignore[attr-defined] # for the form and the count
        if wait:
            raise PermissionDenied
        if user is not None and not settings.ANNALS.demo:
            if not BreakGlass.objects.filter(user=user).exists():
                return None
            attempts.succeeded(request, username)
            metrics.BREAK_GLASS_LOGINS.inc()
            if request is not None:
                setattr(request, BREAK_GLASS, True)  # for the journal
            log.error(
                "BREAK GLASS: %r logged in with a local password from %s",
                *(user.get_username(), attempts.address_of(request)),
            )
        elif user is not None:
            attempts.succeeded(request, username)
        return user

    def get_user(self, user_id: Any) -> Any:
        """The user of a session that a password began. One that began in a demo is worth nothing
        elsewhere, also before `migrate` has switched the logins of the demo off."""
        user = login(user_id)
        if user is None or not self.user_can_authenticate(user):
            return None
        if settings.ANNALS.demo:
            return user
        return user if BreakGlass.objects.filter(user=user).exists() else None

    def _owner(self, username: str, password: str) -> User | None:
        """The user who has this password. Unlike Django's, it stores no new hash of an old one: the
        web's database login may change no password."""
        user = User.objects.filter(username=username).first()
        if user is None:
            make_password(password)  # so that the time does not tell whether the name is known
            return None
        right = check_password(password, user.password) and self.user_can_authenticate(user)
        return user if right else None


def _any_works() -> bool:
    """Whether there is a login that a password opens. It does not depend on the name that was
    given: where one name is hashed all are, so that the time does not tell which of them is known.
    """
    return settings.ANNALS.demo or BreakGlass.objects.filter(user__is_active=True).exists()


@contextmanager
def _hashing(request: HttpRequest | None) -> Iterator[None]:
    """The block may hash a password. Raises BusyError."""
    operator = within(attempts.address_of(request), settings.OPERATOR_NETWORKS)
    with ExitStack() as share:
        try:
            share.enter_context(HASHING["operators" if operator else "others"].taken())
        except BusyError:
            metrics.LOGIN_FAILURES.labels("busy").inc()
            raise
        yield


class LoginForm(AdminAuthenticationForm):
    """Django's form, which also says how long to wait."""

    def get_invalid_login_error(self) -> ValidationError:
        wait = getattr(self.request, "annals_wait", 0)
        if not wait:
            return super().get_invalid_login_error()
        text = ngettext(
            "Too many failed logins. Try again in {n} second.",
            "Too many failed logins. Try again in {n} seconds.",
            wait,
        )
        return ValidationError(text.format(n=wait), code="wait")


def make_break_glass(name: str, password: str, now: Any) -> User:
    """A superuser of this name, or the one there is with a new password. Raises ValidationError
    where the name belongs to a person of a provider."""
    user = User.objects.filter(username=name).first()
    if user is None:
        user = User(username=name)
    elif not BreakGlass.objects.filter(user=user).exists():
        raise ValidationError(_("There is another login of this name."))
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    BreakGlass.objects.update_or_create(user=user, defaults={"made": now})
    return user


def switch_off(user: User) -> None:
    """No password lets this login in any more, its sessions end, and it has no rights."""
    user.is_staff = user.is_superuser = user.is_active = False
    user.set_unusable_password()  # which ends its sessions
    user.save()
