"""Checks a JWT: signature, issuer, audience, times, and its purpose."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from django.utils.translation import gettext_noop as _

from annals.access.oidc.discovery import ALGORITHMS, Discovery, Key
from annals.access.oidc.providers import claim
from annals.access.roles import Service

log = logging.getLogger(__name__)

LONGEST_TOKEN: Final = 16_384
MOST_AGE_SECONDS: Final = 86_400
LEEWAY_SECONDS: Final = 30
LONGEST_NAME: Final = 255  # of `sub`: OpenID Connect Core, section 2
# What a token may call itself; RFC 9068 and RFC 7519. Others are for other purposes.
BEARER_TYPES: Final = (None, "JWT", "at+jwt", "application/at+jwt")
ID_TYPES: Final = (None, "JWT")
# RFC 7515, section 2: base64url without padding and without anything else, which Python skips.
_COMPACT: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"


class TokenError(Exception):
    """The token is refused. The message names no value of it and may be shown to its bearer."""


class ScopeError(Exception):
    """The token is good, but does not have the scope."""


def issuer_of(token: str) -> tuple[Mapping[str, Any], str]:
    """The header of a token, and the issuer that it names. Nothing is checked yet."""
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise TokenError(_("The token is too long or is not a JWT."))
    if _COMPACT.fullmatch(token) is None:
        raise TokenError(_("The token is not a JWT."))
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenError(_("The token is not a JWT.")) from None
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise TokenError(_("The token names no issuer."))
    return header, issuer


def bearer(token: str, discoveries: Mapping[str, Discovery]) -> Service:
    """The caller that a Bearer token stands for. discoveries: by issuer, those accepted. Raises
    TokenError, ScopeError, and ProviderDownError where the issuer's keys are not known."""
    header, issuer = issuer_of(token)
    discovery = discoveries.get(issuer)
    if discovery is None or not discovery.provider.api:
        raise TokenError(_("The token's issuer is not accepted."))
    provider = discovery.provider
    if _kind(header) not in BEARER_TYPES:
        raise TokenError(_("The token is not an access token."))
    claims = _verified(token, header, discovery, provider.api_audiences, ("sub",))
    if "at_hash" in claims or claims.get("typ") in ("ID", "Refresh"):
        raise TokenError(_("The token is not an access token."))
    if "cnf" in claims:
        raise TokenError(_("The token is bound to a key, which is not checked here."))
    scopes = _scopes(claims)
    if provider.scope not in scopes:
        raise ScopeError(f"The token lacks the scope {provider.scope}.")
    # Whom the token was given to. Never `sub` by itself: that can be a person.
    if provider.client_claim is None:
        client = claims.get("client_id") or claims.get("azp")
    else:
        client = claim(claims, provider.client_claim)
    if not client:
        raise TokenError(_("The token names no client."))
    if not _is_text(client):
        raise TokenError(_("The token's client id is not text."))
    if client not in provider.programs:
        log.warning("client %r is not in `programs` of the provider %r", client, provider.name)
        raise TokenError(_("The token's client is not among the programs of its provider."))
    return Service(issuer, client, claims["sub"], provider.sensitive_scope in scopes)


def identity(token: str, discovery: Discovery, nonce: str) -> Mapping[str, Any]:
    """The claims of an ID token of this login. Raises TokenError and ProviderDownError."""
    header, _issuer = issuer_of(token)
    client = discovery.provider.client_id
    if _kind(header) not in ID_TYPES:
        raise TokenError(_("The token is not an ID token."))
    claims = _verified(token, header, discovery, (client,), ("sub",), trusted=True)
    if not nonce or claims.get("nonce") != nonce:
        raise TokenError(_("The token is not of this login (nonce)."))
    audience = claims["aud"]
    several = not isinstance(audience, str) and len(audience) > 1
    if (several or "azp" in claims) and claims.get("azp") != client:
        raise TokenError(_("The token is for another client (azp)."))
    return claims


@dataclass(frozen=True, slots=True)
class Logout:
    """What a back-channel logout token ends: the sessions of a subject, or one session. id: `jti`;
    until: seconds since the epoch when no such token is accepted any more."""

    subject: str | None
    session: str | None
    id: str
    until: int


def logout(token: str, discovery: Discovery) -> Logout:
    """What a back-channel logout token says. Raises TokenError and ProviderDownError."""
    header, _issuer = issuer_of(token)
    if _kind(header) not in (None, "JWT", "logout+jwt", "application/logout+jwt"):
        raise TokenError(_("The token is not a logout token."))
    claims = _verified(token, header, discovery, (discovery.provider.client_id,), ("jti", "events"))
    events = claims["events"]
    if "nonce" in claims or not isinstance(events, dict) or LOGOUT_EVENT not in events:
        raise TokenError(_("The token is not a logout token."))
    subject, session = claims.get("sub"), claims.get("sid")
    if not all(each is None or _is_text(each) for each in (subject, session)):
        raise TokenError(_("The token's subject or session is not text."))
    if subject is None and session is None:
        raise TokenError(_("The token names neither a subject nor a session."))
    if not _is_text(claims["jti"]):
        raise TokenError(_("The token's id is not text."))
    until = min(int(claims["exp"]), int(claims["iat"]) + MOST_AGE_SECONDS)
    return Logout(subject, session, claims["jti"], until + LEEWAY_SECONDS + 1)


def _verified(
    token: str,
    header: Mapping[str, Any],
    discovery: Discovery,
    audiences: Sequence[str],
    required: Sequence[str],
    trusted: bool = False,
) -> dict[str, Any]:
    """The claims, once all of it is right. trusted: the issuer itself gave us the token."""
    provider, algorithm, key_id = discovery.provider, header.get("alg"), header.get("kid")
    if not any(algorithm in each for each in ALGORITHMS.values()):
        raise TokenError(_("The token's algorithm is not accepted."))
    if "crit" in header:
        raise TokenError(_("The token needs an extension that is not known here."))
    if not isinstance(key_id, str | None):
        raise TokenError(_("The token's key id is not text."))
    candidates = discovery.keys(key_id, trusted)
    keys = _fitting(candidates, algorithm)
    required = ("exp", "iat", "iss", "aud", *required)
    claims = _signed_claims(token, keys, audiences, provider.issuer, required)
    if claims is None and (key_id is None or any(key.id is None for key in candidates)):
        # An id that is not known makes the provider be asked again. Here no id says that.
        keys = _fitting(discovery.keys(key_id, trusted, renewed=True), algorithm)
        claims = _signed_claims(token, keys, audiences, provider.issuer, required)
    if not keys:
        raise TokenError(_("The token is signed with a key that its issuer does not have."))
    if claims is None:
        raise TokenError(_("The token's signature is wrong."))
    oldest = time.time() - MOST_AGE_SECONDS - LEEWAY_SECONDS
    if int(claims["iat"]) < oldest:  # not as a float: there are integers beyond it
        raise TokenError(_("The token is too old."))
    if not _is_text(claims.get("sub", "-")):
        raise TokenError(_("The token's subject is not text."))
    return claims


def _fitting(keys: Sequence[Key], algorithm: object) -> Sequence[Key]:
    """Return those of the keys that may check a signature of this algorithm."""
    return [key for key in keys if algorithm in key.algorithms]


def _signed_claims(
    token: str, keys: Sequence[Key], audiences: Sequence[str], issuer: str, required: Sequence[str]
) -> dict[str, Any] | None:
    """Return the claims of a token that one of the keys signed, or None if none of them did.

    Raises:
        TokenError: the token is signed, and what it claims is wrong.
    """
    algorithm = jwt.get_unverified_header(token)["alg"]
    for key in keys:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=list(audiences),
                issuer=issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": list(required)},
            )
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise TokenError(_sentence(error)) from None
        except (ValueError, TypeError, OverflowError, RecursionError):
            raise TokenError(_("The token's claims have the wrong form.")) from None
    return None


_SENTENCES: Final = (
    (jwt.ExpiredSignatureError, _("The token has expired.")),
    (jwt.ImmatureSignatureError, _("The token is not valid yet.")),
    (jwt.InvalidAudienceError, _("The token is for another audience.")),
    (jwt.InvalidIssuerError, _("The token's issuer is not accepted.")),
    (jwt.MissingRequiredClaimError, _("The token lacks a claim that it must have.")),
)


def _sentence(error: jwt.PyJWTError) -> str:
    return next(
        (text for kind, text in _SENTENCES if isinstance(error, kind)),
        _("The token's claims have the wrong form."),
    )


def _is_text(value: object) -> bool:
    """Whether a claim is a name as OpenID Connect limits `sub`: one line, 255 characters at
    most."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def _kind(header: Mapping[str, Any]) -> object:
    kind = header.get("typ")
    if not isinstance(kind, str):
        return kind
    return "JWT" if kind.upper() == "JWT" else kind.lower()


def _scopes(claims: Mapping[str, Any]) -> Sequence[str]:
    """`scope`, a string (RFC 8693), or `scp`, a string or a list, as some providers have it."""
    given = claims.get("scope", claims.get("scp", ""))
    if isinstance(given, str):
        return given.split()
    return [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
