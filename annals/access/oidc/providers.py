"""Reads the identity providers that ANNALS_OIDC_FILE declares."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from annals.access.roles import ROLES
from annals.configuration import env
from annals.configuration.fields import Settings
from history.common.explained_errors import (
    FileError,
    explain_declaration_error,
    read_text,
    refuse_open_secret,
)

DEFAULT_SCOPE = "topst-product-maintenance-changelog"
PROVIDER_NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")

NonEmptyText = Annotated[str, Meta(min_length=1, max_length=1000)]


class ProvidersError(ValueError):
    """Raised if the file has a mistake. The message says where, and what would be right."""


class Provider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One identity provider.

    The name of a claim can be a dotted path into the token, such as `realm_access.roles`.
    """

    name: NonEmptyText  # in addresses; unique
    title: NonEmptyText  # on the login page
    issuer: NonEmptyText
    client_id: NonEmptyText
    client_secret_file: Path | None = None
    ca_file: Path | None = None
    login: bool = True  # whether people may log in
    api: bool = True  # whether its Bearer tokens are accepted
    login_scopes: tuple[NonEmptyText, ...] = ("openid", "profile", "email")
    login_claim: NonEmptyText = "preferred_username"
    name_claim: NonEmptyText = "name"
    groups_claim: NonEmptyText = "groups"
    roles: Mapping[str, str] = {}  # from a value of groups_claim to the role that it gives
    # the `aud` of Bearer tokens for Annals; empty: client_id
    audiences: tuple[NonEmptyText, ...] = ()
    scope: NonEmptyText = DEFAULT_SCOPE
    # the scope with which a Bearer token may read sensitive fields; None: no token may
    sensitive_scope: NonEmptyText | None = None
    # the client id of a Bearer token; None: `client_id` or `azp`
    client_claim: NonEmptyText | None = None
    programs: tuple[NonEmptyText, ...] = ()  # the client ids that may send Bearer tokens

    @property
    def api_audiences(self) -> tuple[str, ...]:
        """The accepted `aud` of Bearer tokens."""
        return self.audiences or (self.client_id,)

    def read_secret(self) -> str | None:
        """Return the client secret, or None for a public client.

        The file is read at each call, so that the secret can be replaced.

        Raises:
            OSError: The file cannot be read.
        """
        if self.client_secret_file is None:
            return None
        return self.client_secret_file.read_text().strip()


class _ProvidersFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    provider: Annotated[tuple[Provider, ...], Meta(min_length=1)]


def load_providers(settings: Settings) -> tuple[Provider, ...]:
    """Return the providers of ANNALS_OIDC_FILE. Empty if it is unset.

    Raises:
        env.SettingError: The file is wrong.
    """
    if settings.oidc_file is None:
        return ()
    try:
        return read_providers(settings.oidc_file)
    except ProvidersError as error:
        raise env.SettingError(f"ANNALS_OIDC_FILE is wrong: {error}. See docs/access.md.") from None


def read_providers(path: Path) -> tuple[Provider, ...]:
    """Return the providers that a TOML or .json file declares, in the order of the file.

    Raises:
        ProvidersError: The file is wrong.
    """
    try:
        text = read_text(path)
    except FileError as error:
        raise ProvidersError(str(error)) from None
    is_json = path.suffix == ".json"
    try:
        decode = msgspec.json.decode if is_json else msgspec.toml.decode
        providers: tuple[Provider, ...] = decode(
            text, type=_ProvidersFile, dec_hook=env.to_path
        ).provider
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProvidersError(
            f"{path}: "
            f"{explain_declaration_error(error, 'JSON' if is_json else 'TOML', _ProvidersFile)}"
        ) from None
    for provider in providers:
        if (wrong := _explain_error(provider)) is not None:
            raise ProvidersError(f"{path}, provider {provider.name!r}: {wrong}")
    for field in ("name", "issuer"):
        values = [getattr(provider, field) for provider in providers]
        for value in values:
            if values.count(value) > 1:
                raise ProvidersError(f"{path}: two providers have the {field} {value!r}")
    return providers


def get_claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim whose name is `path`, or else the value at this dotted path, or None."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _explain_error(provider: Provider) -> str | None:
    """Return the mistake in the declaration of one provider, or None."""
    if PROVIDER_NAME_PATTERN.fullmatch(provider.name) is None:
        return "name must be lower case letters, digits and hyphens, 32 at most"
    if not env.is_safe_url(provider.issuer):
        return (
            "issuer must be an https:// URL without user, query and fragment (http:// only on the "
            f"loopback address), exactly as in its tokens; it is {provider.issuer!r}"
        )
    if unknown := sorted(set(provider.roles.values()) - ROLES.keys()):
        return f"roles gives {', '.join(unknown)}; the roles are {', '.join(ROLES)}"
    if provider.sensitive_scope == provider.scope:
        return "sensitive_scope must differ from scope: every program would read sensitive fields"
    if provider.client_id in provider.programs:
        return "programs has the client_id of Annals itself, whose tokens are for people"
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
