"""The way to a provider and back, and the provider's word that a session has ended."""

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
from annals.access.address import address_of
from annals.access.models import Identity, LogoutToken, ProviderSession
from annals.access.oidc import tokens
from annals.access.oidc.backend import NoRoleError, by_name, setting
from annals.access.oidc.discovery import ProviderDownError

HANDSHAKE_SECONDS: Final = 600
STATES: Final = "oidc_states"
NEXT: Final = "oidc_login_next"
# Browsers drop a cookie of more than 4096 bytes. One of OIDC_MAX_STATES logins has this many
# characters of an address in it; what is longer leads to the first page.
LONGEST_NEXT: Final = 700


class Handshake(CookieStore):
    """The library keeps this in the session; it takes the session's place while the library is at
    work. states: each has provider, next, nonce, code_verifier and added_on."""

    def get_session_cookie_age(self) -> int:
        """How long the signature is valid, in seconds."""
        return HANDSHAKE_SECONDS

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """The logins that were begun, by their `state`."""
        found = self.get(STATES)
        return found if isinstance(found, dict) else {}

    def store(self, response: HttpResponse) -> None:
        """Send it with a response."""
        if not self.states:
            response.delete_cookie(_name(), path=_path())
            return
        self.save()
        response.set_cookie(
            _name(),
            self.session_key or "",
            max_age=HANDSHAKE_SECONDS,
            path=_path(),
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )


def handshake_of(request: HttpRequest) -> Handshake:
    """That of the browser; an empty one if it has none, or one that is too old or not ours."""
    return Handshake(request.COOKIES.get(_name()))


def _name() -> str:
    return f"{settings.COOKIE_PREFIX}annals_login"


def _path() -> str:
    """A cookie with the prefix has no other path."""
    return "/" if settings.COOKIE_PREFIX else f"{get_script_prefix()}oidc/"


log = logging.getLogger(__name__)

# Answers to `prompt=none`: the provider has no session of this person any more.
MUST_SEE = (
    "login_required",
    "interaction_required",
    "consent_required",
    "account_selection_required",
)


@method_decorator(never_cache, "dispatch")
class Login(OIDCAuthenticationRequestView):  # type: ignore[misc] # untyped library
    """Sends the browser to the provider. `renew`: the provider must not ask the person anything.
    503 while the process does discovery.AT_ONCE logins at this provider."""

    provider = ""

    def get_settings(self, name: str, *default: object) -> Any:
        own = {"OIDC_AUTHENTICATION_CALLBACK_URL": f"oidc-callback-{self.provider}"}
        return own.get(name) or setting(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        discovery = by_name(self.provider)
        try:
            with discovery.logins.taken():
                self.OIDC_OP_AUTH_ENDPOINT = discovery.authorization_endpoint()
        except ProviderDownError as error:
            return _down(request, self.provider, error, request.GET.get("next"))
        self.OIDC_RP_CLIENT_ID = discovery.provider.client_id
        own, begun = request.session, handshake_of(request)
        request.session = begun
        try:
            answer: HttpResponse = super().get(request)
        finally:
            request.session = own
        # A code that comes back to another provider's address must not be taken for this login.
        following = begun.pop(NEXT) or ""
        for state in begun.states.values():
            state.setdefault("provider", self.provider)
            state.setdefault("next", following if len(following) <= LONGEST_NEXT else None)
        begun.store(answer)
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """The scopes, and whether the person may be asked."""
        scope = " ".join(by_name(self.provider).provider.login_scopes)
        return {"scope": scope, **({"prompt": "none"} if "renew" in request.GET else {})}


@method_decorator(never_cache, "dispatch")
class Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc] # untyped library
    """Takes the browser back from the provider. 503 as Login."""

    provider = ""
    _next: str
    _own: SessionBase

    def get_settings(self, name: str, *default: object) -> Any:
        return reverse("admin:index") if name == "LOGIN_REDIRECT_URL" else setting(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        begun, name = handshake_of(request), request.GET.get("state", "")
        state = begun.states.get(name)
        if state is None or state.get("provider") != self.provider:
            return _refused(request, _("This login has expired. Please start again."))
        self._next = state.get("next") or reverse("admin:index")
        self._own = request.session
        # Outside of what ends this login: whoever is refused here may load the page again.
        with by_name(self.provider).logins.taken():
            answer = self._answer(request, begun)
        begun.states.pop(name, None)
        begun.store(answer)
        return answer

    def _answer(self, request: HttpRequest, begun: Handshake) -> HttpResponse:
        discovery = by_name(self.provider)
        refusal = _("{provider} did not log you in.").format(provider=discovery.provider.title)
        request.annals_provider = self.provider  # type: ignore[attr-defined] # for the backend
        try:
            if "error" in request.GET:
                return self._refused_there(request, request.GET["error"], refusal)
            request.session = begun
            answer: HttpResponse = super().get(request)
        except ProviderDownError as error:
            return _down(request, self.provider, error, self._next)
        except (tokens.TokenError, SuspiciousOperation) as error:
            log.warning("login at %s refused: %s", self.provider, error)
            return _refused(request, refusal, self._next)
        except NoRoleError:
            log.warning("login at %s refused: no role", self.provider)
            text = _("Your account has no role in Annals. Ask the administrator of Annals for one.")
            setattr(request, sessions.LEFT_BEHIND, self.provider)
            return _refused(request, text)
        finally:
            request.session = self._own
        return answer

    def _refused_there(self, request: HttpRequest, error: str, refusal: str) -> HttpResponse:
        """The provider's own no."""
        log.warning("login at %s refused: %.100r", self.provider, error)
        super().get(request)  # ends the session
        if error in MUST_SEE:
            return sessions.to_login(self._next)
        return _refused(request, refusal, self._next)

    def login_success(self) -> HttpResponse:
        user, request = cast(User, self.user), self.request
        request.session = self._own
        # Always a new session: what an earlier one held, or knew of another person, ends here.
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
            "login of %r at %s from %s", *(user.get_username(), self.provider, address_of(request))
        )
        return HttpResponseRedirect(self._next)

    def login_failure(self) -> HttpResponse:
        said = _("This login was refused. Try again, or ask the administrator of Annals.")
        return _refused(self.request, said)


@csrf_exempt
@require_POST
@never_cache
def ended(request: HttpRequest, provider: str) -> HttpResponse:
    """Back-channel logout: the provider says that a person's sessions have ended."""
    discovery = by_name(provider)
    try:
        said = tokens.logout(request.POST.get("logout_token", ""), discovery)
        count, others = _end(discovery.provider.issuer, said)
    except tokens.TokenError as error:
        log.warning("logout by %s refused: %s", provider, error)
        return HttpResponse(status=400)
    except ProviderDownError:
        return HttpResponse(status=503)
    log.info("%s ended %d sessions, %d are to be confirmed", provider, count, others)
    return HttpResponse(status=200)


@transaction.atomic
def _end(issuer: str, said: tokens.Logout) -> tuple[int, int]:
    """End the sessions; returns how many, and how many others are to be confirmed. A token works
    once, or who has seen one could end each later session too. Raises TokenError."""
    _use(issuer, said)
    found = ProviderSession.objects.filter(identity__issuer=issuer)
    if said.session is not None:
        found = found.filter(provider_session=said.session)
    if said.subject is not None:
        found = found.filter(identity__subject=said.subject)
    keys = list(found.values_list("session_key", flat=True))
    people = Identity.objects.filter(
        Q(providersession__in=keys) | Q(subject=said.subject), issuer=issuer
    )
    others = list(
        ProviderSession.objects.filter(identity__in=list(people)).exclude(session_key__in=keys)
    )
    for key in keys:
        SessionStore(key).delete()
    count, _by_kind = found.delete()
    # Keycloak names one session also where its administrator ended all of a person's.
    for other in others:
        sessions.ask_again(other.session_key)
    return count, len(others)


def _use(issuer: str, said: tokens.Logout) -> None:
    digest = hashlib.sha256(f"{issuer}\0{said.id}".encode()).hexdigest()
    until = datetime.fromtimestamp(said.until, UTC)
    _token, is_new = LogoutToken.objects.get_or_create(digest=digest, defaults={"until": until})
    if not is_new:
        raise tokens.TokenError("The token was used before.")


def _refused(
    request: HttpRequest, why: str, following: str | None = None, status: int = 403
) -> HttpResponse:
    """The page that says why. following: where the login page of its link leads on to."""
    query = urlencode({"next": following} if following else {})
    context = {
        "why": why,
        "title": _("Not logged in"),
        "login_url": f"{reverse('admin:login')}?{query}".rstrip("?"),
    }
    return TemplateResponse(request, "access/refused.html", context, status=status).render()


def _down(
    request: HttpRequest, provider: str, error: ProviderDownError, following: str | None
) -> HttpResponse:
    log.warning("login at %s is not possible: %s", provider, error)
    title = by_name(provider).provider.title
    why = _("{provider} does not answer. Try again in a moment, or log in another way.")
    return _refused(request, why.format(provider=title), following, 503)
