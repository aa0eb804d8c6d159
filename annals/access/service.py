"""A program that reads through the API, in the place of a user."""

from __future__ import annotations

from dataclasses import dataclass

from annals.access.roles import READ, SENSITIVE


@dataclass(frozen=True, slots=True)
class Service:
    """A program that calls with a Bearer token, as the rest of Annals sees a user. It may read,
    and nothing else. sensitive: sensitive fields too."""

    issuer: str
    client: str
    sensitive: bool = False
    is_authenticated: bool = True
    is_active: bool = True
    is_anonymous: bool = False

    @property
    def pk(self) -> str:
        return f"{self.issuer}#{self.client}"

    def get_username(self) -> str:
        """The client id."""
        return self.client

    def has_perm(self, permission: str, _: object = None) -> bool:
        """Whether the scopes give this permission: they give those of reading."""
        return permission in READ or (self.sensitive and permission == SENSITIVE)
