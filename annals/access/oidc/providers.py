"""The identity providers that ANNALS_OIDC_FILE declares: one frozen Provider each."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from annals import env
from annals.access.roles import ROLES
from history.failure.complaints import FileError, of_declaration, read_text, refuse_open_secret

SCOPE = "topst-product-maintenance-changelog"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

Text = Annotated[str, Meta(min_length=1, max_length=1000)]


class ProvidersError(ValueError):
    """The file cannot be used. The message says where it is wrong and what would be right."""


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider. Claims are dotted paths into a token, as `realm_access.roles`.

    name: in addresses, unique. title: on the login page. audiences: the `aud` of Bearer tokens that
    are for Annals; empty: client_id. roles: a value of groups_claim to the role it gives.
    client_claim: the client id of a Bearer token; None: `client_id`, or else `azp`.
    programs: the client ids that may call with a Bearer token, none of them Annals' own.
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
    programs: tuple[Text, ...] = ()

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
    """The providers in the order of the file: TOML, or .json. Raises ProvidersError."""
    try:
        text = read_text(path)
    except FileError as error:
        raise ProvidersError(str(error)) from None
    is_json = path.suffix == ".json"
    try:
        decode = msgspec.json.decode if is_json else msgspec.toml.decode
        found: tuple[Provider, ...] = decode(text, type=_File, dec_hook=env.to_path).provider
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProvidersError(
            f"{path}: {of_declaration(error, 'JSON' if is_json else 'TOML', _File)}"
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
    if NAME.fullmatch(provider.name) is None:
        return "name must be lower case letters, digits and hyphens, 32 at most"
    if not env.is_safe_url(provider.issuer):
        return (
            "issuer must be an https:// URL without user, query and fragment, as its tokens name "
            f"it (http:// only on the loopback address): {provider.issuer!r}"
        )
    if unknown := sorted(set(provider.roles.values()) - ROLES.keys()):
        return f"roles gives {', '.join(unknown)}; the roles are {', '.join(ROLES)}"
    if provider.sensitive_scope == provider.scope:
        return "sensitive_scope must differ from scope: every program would read sensitive fields"
    if provider.client_id in provider.programs:
        return "programs has the client_id of Annals itself: its tokens are people's"
    for field in ("client_secret_file", "ca_file"):
        file = getattr(provider, field)
        if file is not None and not file.is_file():
            return f"{field} is not a file: {file}"
    if provider.client_secret_file is not None:
        try:
            refuse_open_secret(provider.client_secret_file)
        except FileError as error:
            return f"client_secret_file: {error}"
    return None
