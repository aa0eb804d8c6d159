"""The way to a provider and back, and the provider's word that a session has ended."""

from __future__ import annotations

import logging
import time
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import auth
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import SuspiciousOperation
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from annals.access import sessions
from annals.access.attempts import address_of
from annals.access.models import Identity, ProviderSession
from annals.access.oidc import tokens
from annals.access.oidc.backend import by_name, setting
from annals.access.oidc.claims import NoRoleError
from annals.access.oidc.discovery import ProviderDownError

log = logging.getLogger(__name__)

STATES = "oidc_states"
NEXT = "oidc_login_next"
# Answers to `prompt=none`: the provider has no session of this person any more.
MUST_SEE = (
    "login_required",
    "interaction_required",
    "consent_required",
    "account_selection_required",
)


@method_decorator(never_cache, "dispatch")
class Login(OIDCAuthenticationRequestView):  # type: ignore[misc] # untyped library
    """Sends the browser to the provider. `renew`: the provider must not ask the person anything."""

    provider = ""

    def get_settings(self, name: str, *default: object) -> Any:
        own = {"OIDC_AUTHENTICATION_CALLBACK_URL": f"oidc-callback-{self.provider}"}
        return own.get(name) or setting(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        discovery = by_name(self.provider)
        try:
            discovery.check()
            self.OIDC_OP_AUTH_ENDPOINT = discovery.endpoint("authorization_endpoint")
        except ProviderDownError as error:
            return _down(request, self.provider, error, request.GET.get("next"))
        self.OIDC_RP_CLIENT_ID = discovery.provider.client_id
        answer: HttpResponse = super().get(request)
        # A code that comes back to another provider's address must not be taken for this login.
        # Each of several open logins has its own way on.
        for state in request.session[STATES].values():
            state.setdefault("provider", self.provider)
            state.setdefault("next", request.session[NEXT])
        request.session.modified = True
        return answer

    def get_extra_params(self, request: HttpRequest) -> dict[str, str]:
        """The scopes, and whether the person may be asked."""
        scope = " ".join(by_name(self.provider).provider.login_scopes)
        return {"scope": scope, **({"prompt": "none"} if "renew" in request.GET else {})}


@method_decorator(never_cache, "dispatch")
class Callback(OIDCAuthenticationCallbackView):  # type: ignore[misc] # untyped library
    """Takes the browser back from the provider."""

    provider = ""

    def get_settings(self, name: str, *default: object) -> Any:
        return reverse("admin:index") if name == "LOGIN_REDIRECT_URL" else setting(name, *default)

    def get(self, request: HttpRequest) -> HttpResponse:
        discovery = by_name(self.provider)
        refusal = _("{provider} did not log you in.").format(provider=discovery.provider.title)
        state = request.session.get(STATES, {}).get(request.GET.get("state", ""))
        if state is None or state.get("provider") != self.provider:
            return _refused(request, _("This login has expired. Please start again."))
        self._next = state.get("next") or reverse("admin:index")
        request.annals_provider = self.provider  # type: ignore[attr-defined] # for the backend
        try:
            if not discovery.may_answer_as(request.GET.get("iss")):
                log.warning("login at %s refused: the answer names another issuer", self.provider)
                return _refused(request, refusal, self._next)
            if "error" in request.GET:
                return self._refused_there(request, request.GET["error"], refusal)
            answer: HttpResponse = super().get(request)
        except ProviderDownError as error:
            return _down(request, self.provider, error, self._next)
        except (tokens.TokenError, SuspiciousOperation) as error:
            log.warning("login at %s refused: %s", self.provider, error)
            return _refused(request, refusal, self._next)
        except NoRoleError:
            log.warning("login at %s refused: no role", self.provider)
            text = _("Your account has no role in Annals. Ask the administrator of Annals for one.")
            return _refused(request, text)
        return answer

    def _refused_there(self, request: HttpRequest, error: str, refusal: str) -> HttpResponse:
        """The provider's own no. Where it only needs to see the person (after `renew`), the login
        page says so and leads back."""
        log.warning("login at %s refused: %.100r", self.provider, error)
        super().get(request)  # forgets this state, and ends the session
        if error in MUST_SEE:
            return sessions.to_login(sessions.LEFT, self._next)
        return _refused(request, refusal, self._next)

    def login_success(self) -> HttpResponse:
        user, request = cast(User, self.user), self.request
        # Always a new session: what an earlier one held, or knew of another person, ends here.
        if request.user.is_authenticated and request.user != user:
            auth.logout(request)
        ProviderSession.objects.filter(session_key=request.session.session_key).delete()
        auth.login(request, user)
        request.session[sessions.PROVIDER] = self.provider
        provider_session: str = request.annals_provider_session
        request.session[sessions.CONFIRMED] = time.time()
        identity = Identity.objects.get(user=user)
        request.session.save()
        ProviderSession.objects.update_or_create(
            session_key=request.session.session_key,
            defaults={
                "identity": identity,
                "provider_session": provider_session[:255],
                "began": timezone.now(),
            },
        )
        log.info(
            "login of %r at %s from %s",
            *(user.get_username(), self.provider, address_of(request)),
        )
        return HttpResponseRedirect(self._next)

    def login_failure(self) -> HttpResponse:
        return _refused(self.request, _("This login was refused."))


@csrf_exempt
@require_POST
@never_cache
def ended(request: HttpRequest, provider: str) -> HttpResponse:
    """Back-channel logout: the provider says that a person's sessions have ended."""
    discovery = by_name(provider)
    try:
        subject, session = tokens.logout(request.POST.get("logout_token", ""), discovery)
    except tokens.TokenError as error:
        log.warning("logout by %s refused: %s", provider, error)
        return HttpResponse(status=400)
    except ProviderDownError:
        return HttpResponse(status=503)
    found = ProviderSession.objects.filter(identity__issuer=discovery.provider.issuer)
    if session is not None:
        found = found.filter(provider_session=session)
    if subject is not None:
        found = found.filter(identity__subject=subject)
    keys = list(found.values_list("session_key", flat=True))
    people = Identity.objects.filter(
        Q(providersession__in=keys) | Q(subject=subject), issuer=discovery.provider.issuer
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
    log.info("%s ended %d sessions, %d are to be confirmed", provider, count, len(others))
    return HttpResponse(status=200)


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
