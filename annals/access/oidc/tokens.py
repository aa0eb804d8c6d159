"""Verifies tokens (JWT): signature, issuer, audience, times and purpose."""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from django.utils.translation import gettext_noop as _

from annals.access.oidc.discovery import ALGORITHMS, ProviderDiscovery, SigningKey
from annals.access.oidc.providers import get_claim
from annals.access.roles import ProgramUser

log = logging.getLogger(__name__)

MAX_TOKEN_LENGTH: Final = 16_384
MAX_AGE_SECONDS: Final = 86_400
LEEWAY_SECONDS: Final = 30
MAX_NAME_LENGTH: Final = 255  # the limit of `sub` in OpenID Connect Core, section 2
# The accepted `typ` of tokens (RFC 9068, RFC 7519). Tokens of other types have other purposes.
BEARER_TYPES: Final = (None, "JWT", "at+jwt", "application/at+jwt")
ID_TYPES: Final = (None, "JWT")
# RFC 7515, section 2: base64url without padding. Other characters are refused here, because Python
# would skip them.
_COMPACT_JWT_PATTERN: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"


class TokenError(Exception):
    """Raised when a token is refused.

    The message can be shown to the client: it does not quote the token.
    """


class ScopeError(Exception):
    """Raised when a valid token does not have the scope that Annals requires of its provider."""


def read_issuer(token: str) -> tuple[Mapping[str, Any], str]:
    """Return the header of a token and the issuer that it names, without verifying them."""
    if len(token) > MAX_TOKEN_LENGTH or not token.isascii():
        raise TokenError(_("The token is too long or is not a JWT."))
    if _COMPACT_JWT_PATTERN.fullmatch(token) is None:
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


def verify_bearer_token(token: str, discoveries: Mapping[str, ProviderDiscovery]) -> ProgramUser:
    """Verify a Bearer token and return the program that sent it.

    Args:
        token: The text after `Bearer` in the header.
        discoveries: The accepted providers by issuer.

    Raises:
        TokenError: The token is refused.
        ScopeError: The token is valid, but does not have the scope.
        ProviderDownError: The keys of the issuer are not known.
    """
    header, issuer = read_issuer(token)
    discovery = discoveries.get(issuer)
    if discovery is None or not discovery.provider.api:
        raise TokenError(_("The token's issuer is not accepted."))
    provider = discovery.provider
    if _get_token_type(header) not in BEARER_TYPES:
        raise TokenError(_("The token is not an access token."))
    claims = _verify_claims(token, header, discovery, provider.api_audiences, ("sub",))
    if "at_hash" in claims or claims.get("typ") in ("ID", "Refresh"):
        raise TokenError(_("The token is not an access token."))
    if "cnf" in claims:
        raise TokenError(_("The token is bound to a key, which is not checked here."))
    scopes = _get_scopes(claims)
    if provider.scope not in scopes:
        raise ScopeError(f"The token lacks the scope {provider.scope}.")
    # The program to which the token was given. Not taken from `sub`, which can name a person.
    if provider.client_claim is None:
        client = claims.get("client_id") or claims.get("azp")
    else:
        client = get_claim(claims, provider.client_claim)
    if not client:
        raise TokenError(_("The token names no client."))
    if not _is_text(client):
        raise TokenError(_("The token's client id is not text."))
    if client not in provider.programs:
        log.warning("client %r is not in `programs` of the provider %r", client, provider.name)
        raise TokenError(_("The token's client is not among the programs of its provider."))
    return ProgramUser(issuer, client, claims["sub"], provider.sensitive_scope in scopes)


def verify_id_token(token: str, discovery: ProviderDiscovery, nonce: str) -> Mapping[str, Any]:
    """Return the claims of the ID token of a login.

    Raises:
        TokenError: The token is refused.
        ProviderDownError: The keys of the issuer are not known.
    """
    header, _issuer = read_issuer(token)
    client = discovery.provider.client_id
    if _get_token_type(header) not in ID_TYPES:
        raise TokenError(_("The token is not an ID token."))
    claims = _verify_claims(token, header, discovery, (client,), ("sub",), trusted=True)
    if not nonce or claims.get("nonce") != nonce:
        raise TokenError(_("The token is not of this login (nonce)."))
    audience = claims["aud"]
    has_several_audiences = not isinstance(audience, str) and len(audience) > 1
    if (has_several_audiences or "azp" in claims) and claims.get("azp") != client:
        raise TokenError(_("The token is for another client (azp)."))
    return claims


@dataclass(frozen=True, slots=True)
class LogoutRequest:
    """The request of a back-channel logout token: end all sessions of a subject, or one session."""

    subject: str | None  # the person whose sessions end; None: `session` alone decides
    session: str | None  # the provider's id of the session that ends; None: all sessions end
    id: str  # the claim `jti`
    until: int  # Unix time after which the token is not accepted


def verify_logout_token(token: str, discovery: ProviderDiscovery) -> LogoutRequest:
    """Return what a back-channel logout token asks for.

    Raises:
        TokenError: The token is refused.
        ProviderDownError: The keys of the issuer are not known.
    """
    header, _issuer = read_issuer(token)
    if _get_token_type(header) not in (None, "JWT", "logout+jwt", "application/logout+jwt"):
        raise TokenError(_("The token is not a logout token."))
    claims = _verify_claims(
        token, header, discovery, (discovery.provider.client_id,), ("jti", "events")
    )
    events = claims["events"]
    if "nonce" in claims or not isinstance(events, dict) or LOGOUT_EVENT not in events:
        raise TokenError(_("The token is not a logout token."))
    subject, session = claims.get("sub"), claims.get("sid")
    if not all(value is None or _is_text(value) for value in (subject, session)):
        raise TokenError(_("The token's subject or session is not text."))
    if subject is None and session is None:
        raise TokenError(_("The token names neither a subject nor a session."))
    if not _is_text(claims["jti"]):
        raise TokenError(_("The token's id is not text."))
    until = min(int(claims["exp"]), int(claims["iat"]) + MAX_AGE_SECONDS)
    return LogoutRequest(subject, session, claims["jti"], until + LEEWAY_SECONDS + 1)


def _verify_claims(
    token: str,
    header: Mapping[str, Any],
    discovery: ProviderDiscovery,
    audiences: Sequence[str],
    required: Sequence[str],
    trusted: bool = False,
) -> dict[str, Any]:
    """Return the claims of a token after all checks.

    Args:
        token: The token.
        header: The header of the token, not verified yet.
        discovery: The provider that the token names as its issuer.
        audiences: The accepted audiences.
        required: The claims that the token must have besides the claims required of every token.
        trusted: Whether the issuer itself gave the token to Annals.

    Raises:
        TokenError: The token is refused.
        ProviderDownError: The keys of the issuer are not known.
    """
    provider, algorithm, key_id = discovery.provider, header.get("alg"), header.get("kid")
    if not any(algorithm in names for names in ALGORITHMS.values()):
        raise TokenError(_("The token's algorithm is not accepted."))
    if "crit" in header:
        raise TokenError(_("The token needs an extension that is not known here."))
    if not isinstance(key_id, str | None):
        raise TokenError(_("The token's key id is not text."))
    candidates = discovery.get_keys(key_id, trusted)
    keys = _select_keys(candidates, algorithm)
    required = ("exp", "iat", "iss", "aud", *required)
    claims = _decode_claims(token, keys, audiences, provider.issuer, required)
    if claims is None and (key_id is None or any(key.id is None for key in candidates)):
        # get_keys asks the provider again for an unknown key id. Without an id, ask explicitly.
        keys = _select_keys(discovery.get_keys(key_id, trusted, renewed=True), algorithm)
        claims = _decode_claims(token, keys, audiences, provider.issuer, required)
    if not keys:
        raise TokenError(_("The token is signed with a key that its issuer does not have."))
    if claims is None:
        raise TokenError(_("The token's signature is wrong."))
    oldest = time.time() - MAX_AGE_SECONDS - LEEWAY_SECONDS
    if int(claims["iat"]) < oldest:  # compared as int: a float cannot hold every integer
        raise TokenError(_("The token is too old."))
    if not _is_text(claims.get("sub", "-")):
        raise TokenError(_("The token's subject is not text."))
    return claims


def _select_keys(keys: Sequence[SigningKey], algorithm: object) -> Sequence[SigningKey]:
    """Return the keys that may verify a signature of this algorithm."""
    return [key for key in keys if algorithm in key.algorithms]


def _decode_claims(
    token: str,
    keys: Sequence[SigningKey],
    audiences: Sequence[str],
    issuer: str,
    required: Sequence[str],
) -> dict[str, Any] | None:
    """Return the claims of a token if one of the keys signed it, or None.

    Raises:
        TokenError: One of the keys signed the token, but its claims are wrong.
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
            raise TokenError(_explain_jwt_error(error)) from None
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


def _explain_jwt_error(error: jwt.PyJWTError) -> str:
    return next(
        (text for kind, text in _SENTENCES if isinstance(error, kind)),
        _("The token's claims have the wrong form."),
    )


def _is_text(value: object) -> bool:
    """Return whether a claim is one line of text with 1 to MAX_NAME_LENGTH characters."""
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME_LENGTH and value.isprintable()


def _get_token_type(header: Mapping[str, Any]) -> object:
    kind = header.get("typ")
    if not isinstance(kind, str):
        return kind
    return "JWT" if kind.upper() == "JWT" else kind.lower()


def _get_scopes(claims: Mapping[str, Any]) -> Sequence[str]:
    """Return the scopes of a token.

    They are in the claim `scope`, a text (RFC 8693). Some providers use the claim `scp` instead,
    with a text or a list.
    """
    scopes = claims.get("scope", claims.get("scp", ""))
    if isinstance(scopes, str):
        return scopes.split()
    return [scope for scope in scopes if isinstance(scope, str)] if isinstance(scopes, list) else []
