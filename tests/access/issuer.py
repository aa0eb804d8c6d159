"""A token issuer for tests: it serves metadata and keys over HTTP and signs what a test asks for.

A real provider signs only correct tokens. The tests also need tokens that are wrong in one thing.
"""

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from annals.access.oidc.discovery import get_discoveries
from annals.access.oidc.providers import Provider

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
SMALL_RSA = rsa.generate_private_key(65537, 1024)  # noqa: S505 - to be refused
EC = ec.generate_private_key(ec.SECP256R1())
CLIENT = "annals"
PROGRAM = "audit-system"
SCOPE = "topst-product-maintenance-changelog"


def make_jwk(key: Any, name: str | None, **more: object) -> dict[str, object]:
    """Return the public half of a key as a JWK, with `more` as further fields."""
    kind = (
        jwt.algorithms.RSAAlgorithm
        if hasattr(key, "private_numbers") and isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.ECAlgorithm
    )
    fields = dict(json.loads(kind.to_jwk(key.public_key())), **more)
    return fields | ({"kid": name} if name else {})


class LocalIssuer:
    """An HTTP server on the loopback address that acts as an OpenID provider.

    Use it in a `with` statement: it serves until the end of the block.
    """

    def __init__(self, certificate: Path | None = None) -> None:
        """Create the server.

        Args:
            certificate: A file with a certificate and its key. If there is one, the server uses
                TLS.
        """
        self.keys: list[dict[str, object]] = [make_jwk(RSA, "rsa"), make_jwk(EC, "ec", alg="ES256")]
        self.metadata: dict[str, object] = {}
        self.requests: list[str] = []
        # Claims that are added to every token.
        self.extra: dict[str, object] = {}
        # The ID token in answers of the token endpoint.
        self.id_token = ""
        # Whether every request is answered with 404.
        self.down = False
        # Requests for this path wait until `go_on` is set.
        self.hangs = ""
        self.go_on = threading.Event()
        issuer = self

        class IssuerHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                if self.path == issuer.hangs:
                    issuer.go_on.wait(120)
                body = issuer.answer(self.path)
                self.send_response(404 if body is None or issuer.down else 200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Write no log line for a request."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), IssuerHandler)
        if certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/realm"

    def answer(self, path: str) -> object:
        """Return the JSON value that is served at a path, or None if the path is unknown."""
        if path == "/realm/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.metadata
        if path == "/realm/token":
            return {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token}
        return {"keys": self.keys} if path == "/realm/keys" else None

    def make_claims(self, **changed: object) -> dict[str, Any]:
        """Return valid claims of an access token, with changes; the value None removes a claim."""
        now = int(time.time())
        good = {
            "iss": self.url,
            "sub": "service-account-audit",
            "aud": CLIENT,
            "client_id": PROGRAM,
            "scope": f"openid {SCOPE}",
            "iat": now,
            "exp": now + 300,
        }
        return {
            name: value
            for name, value in (good | self.extra | changed).items()
            if value is not None
        }

    def make_token(
        self,
        key: Any = RSA,
        algorithm: str = "RS256",
        kid: str | None = "rsa",
        header: dict[str, object] | None = None,
        **changed: object,
    ) -> str:
        """Return a signed token with the claims of make_claims()."""
        names = ({"kid": kid} if kid else {}) | (header or {})
        return jwt.encode(self.make_claims(**changed), key, algorithm, headers=names)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def make_unsigned_token(
    header: dict[str, object], claims: dict[str, object], signature: bytes = b""
) -> str:
    """Return a token of these parts. `signature` is appended unchanged, and can be invalid."""
    parts = [json.dumps(part_value).encode() for part_value in (header, claims)] + [signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def declare_provider(settings: Any, issuer: LocalIssuer, **more: Any) -> None:
    """Make the issuer the only declared provider of Annals, with the name `bank`.

    Args:
        more: Further fields of its declaration.
    """
    values = {"name": "bank", "title": "Bank", "issuer": issuer.url, "client_id": CLIENT}
    more = {"programs": (PROGRAM,)} | more
    settings.OIDC_PROVIDERS = (Provider(**values, roles={"staff": "support"}, **more),)
    get_discoveries.cache_clear()
