"""Logs people in at a provider, and ends their sessions when the provider has ended them."""

import hashlib
import logging
import time
from datetime import UTC, datetime
from typing import Any, Final, cast
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.backends.signed_cookies import SessionStore as CookieStore
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from annals.access import sessions
from annals.access.client_address import get_client_address
from annals.access.models import Identity, LogoutToken, ProviderSession
from annals.access.oidc import tokens
from annals.access.oidc.backend import NoRoleError, find_login_provider, get_library_setting
from annals.access.oidc.discovery import ProviderDownError

HANDSHAKE_SECONDS: Final = 600
STATES_KEY: Final = "oidc_states"
NEXT_KEY: Final = "oidc_login_next"
# The longest address, in characters, to which a login returns. If the address is longer, the login
# returns to the start page. Browsers drop a cookie of more than 4096 bytes, and this cookie has up
# to OIDC_MAX_STATES addresses.
MAX_NEXT_LENGTH: Final = 700


class LoginHandshake(CookieStore):
    """The state of the logins that a browser has begun, in a signed cookie.

    mozilla-django-oidc would keep this state in the session. The handshake takes the place of
    `request.session` while the library works, so that a login stores no session before it is
    complete.
    """

    def get_session_cookie_age(self) -> int:
        """Return for how many seconds the signature of the cookie is valid."""
        return HANDSHAKE_SECONDS

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """The logins in progress, by the value of the URL parameter `state`.

        Each login is a dictionary with `provider`, `next`, `nonce`, `code_verifier` and `added_on`.
        """
        states = self.get(STATES_KEY)
        return states if isinstance(states, dict) else {}

    def send_cookie(self, response: HttpResponse) -> None:
        """Set the cookie in a response, or delete it if no login is in progress."""
        if not self.states:
            response.delete_cookie(_get_cookie_name(), path=_get_cookie_path())
            return
        self.save()
        response.set_cookie(
            _get_cookie_name(),
            self.session_key or "",
            max_age=HANDSHAKE_SECONDS,
            path=_get_cookie_path(),
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )


def get_handshake(request: HttpRequest) -> LoginHandshake:
    """Return the handshake in the cookie. It is empty without a valid cookie."""
    return LoginHandshake(request.COOKIES.get(_get_cookie_name()))


def _get_cookie_name() -> str:
    return f"{settings.COOKIE_PREFIX}annals_login"


def _get_cookie_path() -> str:
    """Return the path of the cookie. With the prefix __Host- browsers accept only `/`."""
    return "/" if settings.COOKIE_PREFIX else f"{get_script_prefix()}oidc/"


log = logging.getLogger(__name__)

# Errors after `prompt=none`: the person has to do something at the provider.
NEEDS_PERSON_ERRORS = (
    "login_required",
    "interaction_required",
    "consent_required",
    "account_selection_required",
)


@method_decorator(never_cache, "dispatch")
class LoginView(OIDCAuthenticationRequestView):  # type: ignore[misc] # untyped library
    """The view that sends the browser to the provider to log in.

    With `?renew` the provider must not ask the person anything. The answer is 503 while this
    process has too many logins at this provider in progress. See `ProviderDiscovery.logins`.
    """

    provider = ""

    def get_settings(self, name: str, *default: object) -> Any:
        overrides = {"OIDC_AUTHENTICATION_CALLBACK_URL": f"oidc-callback-{self.provider}"}
        return overrides.get(name) or get_library_setting(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        discovery = find_login_provider(self.provider)
        try:
            with discovery.logins.take_place():
                self.OIDC_OP_AUTH_ENDPOINT = discovery.fetch_authorization_endpoint()
        except ProviderDownError as error:
            return _render_provider_down(request, self.provider, error, request.GET.get("next"))
        self.OIDC_RP_CLIENT_ID = discovery.provider.client_id
        session, handshake = request.session, get_handshake(request)
        request.session = handshake
        try:
            answer: HttpResponse = super().get(request)
        finally:
            request.session = session
        # The state names the provider: another provider's callback address refuses this login.
        following = handshake.pop(NEXT_KEY) or ""
        for state in handshake.states.values():
            state.setdefault("provider", self.provider)
            state.setdefault("next", following if len(following) <= MAX_NEXT_LENGTH else None)
        handshake.send_cookie(answer)
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """Return the parameters to add to the provider's address.

        These are the scopes and, with `?renew`, `prompt=none`: the provider must not ask the
        person anything.
        """
        scope = " ".join(find_login_provider(self.provider).provider.login_scopes)
        return {"scope": scope, **({"prompt": "none"} if "renew" in request.GET else {})}


@method_decorator(never_cache, "dispatch")
class CallbackView(OIDCAuthenticationCallbackView):  # type: ignore[misc] # untyped library
    """The view that completes a login when the browser comes back from the provider.

    The answer is 503 while this process has too many logins at this provider in progress.
    """

    provider = ""
    _next: str
    _own: SessionBase

    def get_settings(self, name: str, *default: object) -> Any:
        return (
            reverse("admin:index")
            if name == "LOGIN_REDIRECT_URL"
            else get_library_setting(name, *default)
        )

    def get(self, request: HttpRequest) -> HttpResponse:
        handshake, name = get_handshake(request), request.GET.get("state", "")
        state = handshake.states.get(name)
        if state is None or state.get("provider") != self.provider:
            return _render_refusal(request, _("This login has expired. Please start again."))
        self._next = state.get("next") or reverse("admin:index")
        self._own = request.session
        # A 503 here does not use up the state, so the browser can load the page again.
        with find_login_provider(self.provider).logins.take_place():
            answer = self._finish_login(request, handshake)
        handshake.states.pop(name, None)
        handshake.send_cookie(answer)
        return answer

    def _finish_login(self, request: HttpRequest, handshake: LoginHandshake) -> HttpResponse:
        discovery = find_login_provider(self.provider)
        refusal = _("{provider} did not log you in.").format(provider=discovery.provider.title)
        request.annals_provider = self.provider  # type: ignore[attr-defined] # for the backend
        try:
            if "error" in request.GET:
                return self._answer_provider_refusal(request, request.GET["error"], refusal)
            request.session = handshake
            answer: HttpResponse = super().get(request)
        except ProviderDownError as error:
            return _render_provider_down(request, self.provider, error, self._next)
        except (tokens.TokenError, SuspiciousOperation) as error:
            log.warning("login at %s refused: %s", self.provider, error)
            return _render_refusal(request, refusal, self._next)
        except NoRoleError:
            log.warning(
                "login through provider %s refused by Annals: the account has no role",
                self.provider,
            )
            text = _("Your account has no role in Annals. Ask the administrator of Annals for one.")
            setattr(request, sessions.OPEN_PROVIDER, self.provider)
            return _render_refusal(request, text)
        finally:
            request.session = self._own
        return answer

    def _answer_provider_refusal(
        self, request: HttpRequest, error: str, refusal: str
    ) -> HttpResponse:
        """Answer a login that the provider refused."""
        log.warning("login at %s refused: %.100r", self.provider, error)
        super().get(request)  # ends the session
        if error in NEEDS_PERSON_ERRORS:
            return sessions.redirect_to_login(self._next)
        return _render_refusal(request, refusal, self._next)

    def login_success(self) -> HttpResponse:
        user, request = cast(User, self.user), self.request
        request.session = self._own
        # Begin a new session: an earlier one may belong to another person.
        if request.user.is_authenticated and request.user != user:
            auth.logout(request)
        ProviderSession.objects.filter(session_key=request.session.session_key).delete()
        auth.login(request, user)
        request.session[sessions.PROVIDER] = self.provider
        provider_session: str = request.annals_provider_session
        request.session[sessions.CONFIRMED] = time.time()
        request.session.save()
        ProviderSession.objects.create(
            session_key=request.session.session_key,
            identity=Identity.objects.get(user=user),
            provider_session=provider_session[:255],
            began=timezone.now(),
        )
        log.info(
            "%r logged in through provider %s from %s",
            user.get_username(),
            self.provider,
            get_client_address(request),
        )
        return HttpResponseRedirect(self._next)

    def login_failure(self) -> HttpResponse:
        reason = _("This login was refused. Try again, or ask the administrator of Annals.")
        return _render_refusal(self.request, reason)


@csrf_exempt
@require_POST
@never_cache
def end_provider_sessions(request: HttpRequest, provider: str) -> HttpResponse:
    """End the sessions that the provider asks to end (back-channel logout)."""
    discovery = find_login_provider(provider)
    try:
        logout = tokens.verify_logout_token(request.POST.get("logout_token", ""), discovery)
        count, to_confirm = _end_sessions(discovery.provider.issuer, logout)
    except tokens.TokenError as error:
        log.warning("logout by %s refused: %s", provider, error)
        return HttpResponse(status=400)
    except ProviderDownError:
        return HttpResponse(status=503)
    log.info("%s ended %d sessions, %d others must be confirmed", provider, count, to_confirm)
    return HttpResponse(status=200)


@transaction.atomic
def _end_sessions(issuer: str, logout: tokens.LogoutRequest) -> tuple[int, int]:
    """End the sessions that a logout token names, and put the person's other sessions on hold.

    A session on hold is anonymous until the provider confirms it. A token works once: otherwise a
    program that has seen a token could end later sessions too.

    Returns:
        The number of sessions that ended, and the number of sessions on hold.

    Raises:
        TokenError: The token was used before.
    """
    _use_token_once(issuer, logout)
    provider_sessions = ProviderSession.objects.filter(identity__issuer=issuer)
    if logout.session is not None:
        provider_sessions = provider_sessions.filter(provider_session=logout.session)
    if logout.subject is not None:
        provider_sessions = provider_sessions.filter(identity__subject=logout.subject)
    keys = list(provider_sessions.values_list("session_key", flat=True))
    people = Identity.objects.filter(
        Q(providersession__in=keys) | Q(subject=logout.subject), issuer=issuer
    )
    other_sessions = list(
        ProviderSession.objects.filter(identity__in=list(people)).exclude(session_key__in=keys)
    )
    for key in keys:
        SessionStore(key).delete()
    count, _by_kind = provider_sessions.delete()
    # Keycloak names one session even if its administrator ended all sessions of the person.
    for other_session in other_sessions:
        sessions.require_confirmation(other_session.session_key)
    return count, len(other_sessions)


def _use_token_once(issuer: str, logout: tokens.LogoutRequest) -> None:
    digest = hashlib.sha256(f"{issuer}\0{logout.id}".encode()).hexdigest()
    until = datetime.fromtimestamp(logout.until, UTC)
    _token, is_new = LogoutToken.objects.get_or_create(digest=digest, defaults={"until": until})
    if not is_new:
        raise tokens.TokenError("The token was used before.")


def _render_refusal(
    request: HttpRequest, reason: str, following: str | None = None, status: int = 403
) -> HttpResponse:
    """Render the page that says why a login was refused.

    Args:
        following: The address to which the browser goes after a new login. The page has a link to
            log in again. None: the browser goes to the start page.
    """
    query = urlencode({"next": following} if following else {})
    context = {
        "reason": reason,
        "title": _("Not logged in"),
        "login_url": f"{reverse('admin:login')}?{query}".rstrip("?"),
    }
    return TemplateResponse(request, "access/refused.html", context, status=status).render()


def _render_provider_down(
    request: HttpRequest, provider: str, error: ProviderDownError, following: str | None
) -> HttpResponse:
    log.warning("login at %s is not possible: %s", provider, error)
    title = find_login_provider(provider).provider.title
    reason = _("{provider} does not answer. Try again in a moment, or log in another way.")
    return _render_refusal(request, reason.format(provider=title), following, 503)
