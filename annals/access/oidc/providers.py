"""The identity providers that ANNALS_OIDC_FILE declares: one frozen Provider each; and which of
their addresses are usable in calls, redirects, headers and documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta

from annals import env
from annals.access.roles import ROLES
from history.failure.complaints import FileError, of_declaration, read_text

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
LONGEST: Final = 2_000
# ASCII only, and none of the characters that end a source or a directive of a policy.
_FORM: Final = re.compile(
    r"https?://(?:[\w.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:[/?][\w~:/?@!$&()*+=%.-]*)?",
    re.ASCII | re.IGNORECASE,
)


def parts(address: object) -> SplitResult | None:
    """The parts of an address that is usable at all; None: it is not."""
    if not isinstance(address, str) or len(address) > LONGEST or not _FORM.fullmatch(address):
        return None
    try:
        found = urlsplit(address)
        usable = found.hostname and found.port != 0
    except ValueError:
        return None
    return found if usable else None


def is_usable(address: object, issuer: str) -> bool:
    """Over TLS, or where the issuer itself is on the loopback address, also there: a provider
    elsewhere must not send us, with the client secret, to a program on this machine."""
    found = parts(address)
    return found is not None and (
        found.scheme == "https"
        or (found.hostname in LOOPBACK and urlsplit(issuer).scheme == "http")
    )


SCOPE = "topst-product-maintenance-changelog"
ALGORITHMS = ("RS256", "PS256", "ES256")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Seconds = Annotated[int, Meta(ge=1, le=86_400 * 30)]


class ProvidersError(ValueError):
    """The file cannot be used. The message says where it is wrong and what would be right."""


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider. Claims are dotted paths into a token, as `realm_access.roles`.

    name: in addresses, unique. title: on the login page. audiences: the `aud` of Bearer tokens that
    are for Annals; empty: client_id. roles: a value of groups_claim to the role it gives.
    client_claim: the client id of a Bearer token; None: `client_id`, or else `azp`.
    docs_client_id: a public client, with which people log in on /api/docs/; None: they do not.
    sensitive_scope: what a Bearer token must have in addition to read sensitive fields; None: no
    token does.
    login, api: whether people may log in with it, and whether its Bearer tokens are accepted.
    """

    name: Text
    title: Text
    issuer: Text
    client_id: Text
    client_secret_file: Path | None = None
    ca_file: Path | None = None
    login: bool = True
    api: bool = True
    login_scopes: tuple[Text, ...] = ("openid", "profile", "email")
    login_claim: Text = "preferred_username"
    name_claim: Text = "name"
    groups_claim: Text = "groups"
    roles: Mapping[str, str] = {}
    audiences: tuple[Text, ...] = ()
    scope: Text = SCOPE
    sensitive_scope: Text | None = None
    client_claim: Text | None = None
    docs_client_id: Text | None = None
    algorithms: Annotated[tuple[str, ...], Meta(min_length=1)] = ALGORITHMS
    max_age_seconds: Seconds = 86_400
    leeway_seconds: Annotated[int, Meta(ge=0, le=300)] = 30

    @property
    def api_audiences(self) -> tuple[str, ...]:
        """The audiences that a Bearer token may name."""
        return self.audiences or (self.client_id,)

    def secret(self) -> str | None:
        """The client secret, read from its file at each call so that it can be replaced; None for
        a public client. Raises OSError."""
        if self.client_secret_file is None:
            return None
        return self.client_secret_file.read_text().strip()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: Annotated[tuple[Provider, ...], Meta(min_length=1)]


def given(settings: env.Settings) -> tuple[Provider, ...]:
    """The providers of ANNALS_OIDC_FILE; none where it is unset. Raises env.SettingError."""
    if settings.oidc_file is None:
        return ()
    try:
        return read(settings.oidc_file)
    except ProvidersError as error:
        raise env.SettingError(f"ANNALS_OIDC_FILE is wrong: {error}. See docs/access.md.") from None


def read(path: Path) -> tuple[Provider, ...]:
    """The providers in the order of the file: TOML, or JSON where its name ends in .json.

    Raises ProvidersError.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise ProvidersError(str(error)) from None
    is_json = path.suffix == ".json"
    try:
        decode = msgspec.json.decode if is_json else msgspec.toml.decode
        found: tuple[Provider, ...] = decode(text, type=_File, dec_hook=_path).provider
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProvidersError(
            f"{path}: {of_declaration(error, 'JSON' if is_json else 'TOML')}"
        ) from None
    for provider in found:
        if (wrong := _wrong(provider)) is not None:
            raise ProvidersError(f"{path}, provider {provider.name!r}: {wrong}")
    for field in ("name", "issuer"):
        values = [getattr(provider, field) for provider in found]
        for value in values:
            if values.count(value) > 1:
                raise ProvidersError(f"{path}: two providers have the {field} {value!r}")
    return found


def claim(claims: Mapping[str, Any], path: str) -> Any:
    """The claim of exactly this name, or else at this dotted path; None if there is none."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _wrong(provider: Provider) -> str | None:
    """What is wrong with one provider by itself; None: nothing."""
    issuer = parts(provider.issuer)
    if NAME.fullmatch(provider.name) is None:
        return "name must be lower case letters, digits and hyphens, 32 at most"
    if issuer is None or issuer.query:
        return f"issuer must be a URL without query, as its tokens name it: {provider.issuer!r}"
    if issuer.scheme != "https" and not (issuer.scheme == "http" and issuer.hostname in LOOPBACK):
        return "issuer must begin with https:// (http:// only on the loopback address)"
    if unknown := sorted(set(provider.roles.values()) - ROLES.keys()):
        return f"roles gives {', '.join(unknown)}; the roles are {', '.join(ROLES)}"
    if unknown := sorted(set(provider.algorithms) - set(ALGORITHMS)):
        return f"algorithms has {', '.join(unknown)}; accepted are {', '.join(ALGORITHMS)}"
    if provider.client_claim == "sub" and provider.docs_client_id is not None:
        return "client_claim must not be sub with docs_client_id: people would count as programs"
    for field in ("client_secret_file", "ca_file"):
        file = getattr(provider, field)
        if file is not None and not file.is_file():
            return f"{field} is not a file: {file}"
    return None


def _path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise TypeError(kind)
