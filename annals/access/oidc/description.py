"""How the OpenAPI document and its page offer the identity providers."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from annals.access.oidc.discovery import Discovery, discoveries
from history.api.schema import Docs, OpenSchema

Scheme = dict[str, Any]
JWT: Scheme = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "A JWT of an accepted issuer with its scope, as programs have it.",
}


class _Bearer(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """A token in itself, and each provider that gives tokens."""

    target_class = "annals.access.oidc.bearer.BearerToken"

    @property
    def name(self) -> list[str]:  # type: ignore[override] # a class attribute of the library
        return ["bearer", *(scheme_name(each) for each in _offered())]

    def get_security_definition(self, auto_schema: Any) -> list[Scheme]:  # noqa: ARG002
        return [JWT, *(scheme(each) for each in _offered())]

    def get_security_requirement(self, auto_schema: Any) -> list[dict[str, list[str]]]:  # noqa: ARG002
        return [{"bearer": []}, *({scheme_name(e): [e.provider.scope]} for e in _offered())]


def scheme_name(discovery: Discovery) -> str:
    """The name of the provider's security scheme."""
    return f"oidc-{discovery.provider.name}"


def scheme(discovery: Discovery) -> Scheme:
    """How to get a token of this provider. Without its addresses, where it names them."""
    provider = discovery.provider
    token, authorize = (
        discovery.known(name) for name in ("token_endpoint", "authorization_endpoint")
    )
    if token is None:
        return {"type": "openIdConnect", "openIdConnectUrl": discovery.address}
    scopes = {provider.scope: "Read the history."}
    if provider.sensitive_scope is not None:
        scopes[provider.sensitive_scope] = "Read sensitive fields too: for programs."
    flows: Scheme = {"clientCredentials": {"tokenUrl": token, "scopes": scopes}}
    if provider.docs_client_id is not None and authorize is not None:
        own = {provider.scope: scopes[provider.scope]}
        flows["authorizationCode"] = {
            "authorizationUrl": authorize,
            "tokenUrl": token,
            "scopes": own,
        }
    return {"type": "oauth2", "description": provider.title, "flows": flows}


class LoginDocs(Docs):
    """GET /api/docs/: may ask the token endpoints of the providers that people log in with."""

    template_name_js = "access/docs.js"

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        answer: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        known = {each: each.known("token_endpoint") for each in _with_login()}
        answer.data["clients"] = json.dumps(
            {scheme_name(each): each.provider.docs_client_id for each in known}
        )
        answer.data["scopes"] = json.dumps(sorted({each.provider.scope for each in known}))
        answer.data["redirect"] = reverse("docs-login")
        # The window of the login must find the one that opened it.
        answer.headers["Cross-Origin-Opener-Policy"] = "same-origin-allow-popups"
        origins = sorted({_origin(address) for address in known.values() if address is not None})
        answer._csp_update = {"connect-src": origins}  # type: ignore[attr-defined]
        return answer


class LoginDone(OpenSchema):
    """GET /api/docs/login/: where a provider sends the window of the login."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        answer = render(request._request, "access/docs_login.html")
        answer.headers["Cross-Origin-Opener-Policy"] = "unsafe-none"  # as the provider's own page
        return answer


def _offered() -> Sequence[Discovery]:
    return [each for each in discoveries().values() if each.provider.api]


def _with_login() -> Sequence[Discovery]:
    return [each for each in _offered() if each.provider.docs_client_id is not None]


def _origin(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"
