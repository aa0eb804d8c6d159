"""Hostile tokens. Every token breaks exactly one rule.

The rows of HOSTILE and BEARER have a description of the broken rule, a function that makes the
token, and a pattern. If a request sends the token as its Bearer token, Annals refuses the request,
and the error message matches the pattern.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.access.issuer import (
    CLIENT,
    EC,
    OTHER_RSA,
    RSA,
    SMALL_RSA,
    LocalIssuer,
    make_jwk,
    make_unsigned_token,
)

NOW = int(time.time())
PUBLIC = RSA.public_key()
PEM = PUBLIC.public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
P384 = ec.generate_private_key(ec.SECP384R1())

TokenMaker = Callable[[LocalIssuer], str]


def sign_with_public_key(issuer: LocalIssuer, key: bytes) -> str:
    """Return a token signed by HS256 with a public key as the secret.

    The token is signed without PyJWT, because PyJWT refuses to sign with a public key.
    """
    text = make_unsigned_token({"alg": "HS256", "kid": "rsa"}, issuer.make_claims()).rstrip(".")
    signature = hmac.digest(key, text.encode(), hashlib.sha256)
    return text + "." + jwt.utils.base64url_encode(signature).decode()


def replace_claims(issuer: LocalIssuer) -> str:
    """Return a token in which the claims were replaced after signing."""
    head, _, signature = issuer.make_token().split(".")
    body = make_unsigned_token({}, issuer.make_claims(sub="root")).split(".")[1]
    return f"{head}.{body}.{signature}"


def sign_unchecked_claims(issuer: LocalIssuer, **changed: object) -> str:
    """Return a signed token with changed claims.

    The claims are encoded without PyJWT's checks, because PyJWT refuses some wrong claims.
    """
    claims = json.dumps(issuer.make_claims(**changed)).encode()
    return jwt.api_jws.PyJWS().encode(claims, RSA, "RS256", headers={"kid": "rsa"})


def sign_bytes(header: bytes, claims: bytes, signed: bool = True) -> str:
    """Return a token of these bytes with the issuer's signature, or with an empty signature."""
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(text, RSA)
    return f"{text.decode()}.{jwt.utils.base64url_encode(signature if signed else b'').decode()}"


def sign_changed_claims(issuer: LocalIssuer, change: Callable[[str], str]) -> str:
    """Return a signed token. `change` edits the JSON text of the claims before they are signed."""
    return sign_bytes(
        b'{"alg":"RS256","kid":"rsa"}', change(json.dumps(issuer.make_claims())).encode()
    )


def publish_key(issuer: LocalIssuer, key: dict[str, object], token: str) -> str:
    """Add `key` to the keys that the issuer publishes, and return `token` unchanged.

    So a lambda can publish the key and make the token in one expression.
    """
    issuer.keys.append(key)
    return token


def make_es256_token(issuer: LocalIssuer, signature: bytes) -> str:
    """Return a token that names the EC key and has this signature."""
    return make_unsigned_token({"alg": "ES256", "kid": "ec"}, issuer.make_claims(), signature)


def sign_with_published_key(issuer: LocalIssuer, **fields: object) -> str:
    """Return a token signed with a second key, which the issuer publishes with these JWK fields."""
    key = make_jwk(OTHER_RSA, "other") | fields
    return publish_key(issuer, key, issuer.make_token(key=OTHER_RSA, kid="other"))


def insert_into_claims(token: str, fragment: str) -> str:
    """Insert the fragment into the encoded claims of the token."""
    half = token.index(".") + 10
    return token[:half] + fragment + token[half:]


HOSTILE: dict[str, tuple[TokenMaker, str]] = {
    "nothing": (lambda _: "", "not a JWT"),
    "one word": (lambda _: "abc", "not a JWT"),
    "not ASCII": (lambda i: i.make_token() + "ё", "not a JWT"),
    "far too long": (lambda i: i.make_token(filler="x" * 20_000), "too long"),
    "claims are a list": (
        lambda _: make_unsigned_token({"alg": "RS256"}, []),  # type: ignore[arg-type]
        "not a JWT",
    ),
    "no issuer": (lambda i: i.make_token(iss=None), "names no issuer"),
    "issuer is a list": (
        lambda i: make_unsigned_token({"alg": "RS256"}, i.make_claims(iss=["x"])),
        "no issuer",
    ),
    "another issuer": (
        lambda i: i.make_token(iss="https://evil.example"),
        "issuer is not accepted",
    ),
    "issued at a number beyond float": (lambda i: i.make_token(iat=-(10**400)), "too old"),
    "subject has a line feed": (lambda i: i.make_token(sub="a\nb"), "subject is not text"),
    "subject of 256 characters": (lambda i: i.make_token(sub="a" * 256), "subject is not text"),
    "alg none": (
        lambda i: make_unsigned_token({"alg": "none", "kid": "rsa"}, i.make_claims()),
        "algorithm",
    ),
    "no alg": (lambda i: make_unsigned_token({"kid": "rsa"}, i.make_claims()), "algorithm"),
    "alg is a list": (
        lambda i: make_unsigned_token({"alg": ["RS256"], "kid": "rsa"}, i.make_claims()),
        "algor",
    ),
    "HS256 with the public key": (lambda i: sign_with_public_key(i, PEM), "algorithm"),
    "RS512": (lambda i: i.make_token(algorithm="RS512"), "algorithm"),
    "no signature": (lambda i: i.make_token().rpartition(".")[0] + ".", "signature"),
    "other claims under a good signature": (replace_claims, "signature"),
    "another key under our key's id": (lambda i: i.make_token(key=OTHER_RSA), "signature"),
    "unknown key id": (lambda i: i.make_token(kid="unknown"), "does not have"),
    "key id is a number": (
        lambda i: make_unsigned_token({"alg": "RS256", "kid": 7}, i.make_claims()),
        "not a JWT",
    ),
    "no key id, signed with a key that the issuer does not have": (
        lambda i: i.make_token(key=OTHER_RSA, kid=None),
        "signature",
    ),
    "no key id, signed with a key for encryption": (
        lambda i: publish_key(
            i, make_jwk(OTHER_RSA, None, use="enc"), i.make_token(key=OTHER_RSA, kid=None)
        ),
        "signature",
    ),
    "an unknown key id, signed with a key of another id": (
        lambda i: publish_key(i, make_jwk(OTHER_RSA, None), i.make_token(kid="unknown")),
        "signature",
    ),
    "no key id, RS256 with a key for PS256": (
        lambda i: publish_key(
            i, make_jwk(OTHER_RSA, None, alg="PS256"), i.make_token(key=OTHER_RSA, kid=None)
        ),
        "signature",
    ),
    "RS256 with the id of an EC key": (lambda i: i.make_token(kid="ec"), "does not have"),
    "its own key in the header": (
        lambda i: i.make_token(
            key=OTHER_RSA, kid="mine", header={"jwk": make_jwk(OTHER_RSA, "mine")}
        ),
        "does not have",
    ),
    "a place of keys in the header": (
        lambda i: i.make_token(
            key=OTHER_RSA, kid="mine", header={"jku": "http://127.0.0.1:9/keys"}
        ),
        "does not have",
    ),
    "a key of 1024 bits": (
        lambda i: publish_key(
            i, make_jwk(SMALL_RSA, "small"), i.make_token(key=SMALL_RSA, kid="small")
        ),
        "does not have",
    ),
    "a key for encryption": (
        lambda i: publish_key(
            i, make_jwk(OTHER_RSA, "enc", use="enc"), i.make_token(key=OTHER_RSA, kid="enc")
        ),
        "does not have",
    ),
    "a critical extension": (
        lambda i: i.make_token(header={"crit": ["x"], "x": 1}),
        "JWT|extension",
    ),
    "expired": (lambda i: i.make_token(exp=int(time.time()) - 120), "expired"),
    "never expires": (lambda i: i.make_token(exp=None), "lacks a claim"),
    "expiry is text": (lambda i: i.make_token(exp="tomorrow"), "wrong form"),
    "not before tomorrow": (lambda i: i.make_token(nbf=NOW + 86_400), "not valid yet"),
    "issued tomorrow": (
        lambda i: i.make_token(iat=NOW + 86_400, exp=NOW + 90_000),
        "not valid yet",
    ),
    "issued at no time": (lambda i: i.make_token(iat=None), "lacks a claim"),
    "issued two days ago": (lambda i: i.make_token(iat=NOW - 172_800), "too old"),
    "no audience": (lambda i: i.make_token(aud=None), "lacks a claim"),
    "another audience": (lambda i: i.make_token(aud="other"), "another audience"),
    "audience is an object": (lambda i: i.make_token(aud={CLIENT: 1}), "audience|wrong form"),
    "no subject": (lambda i: i.make_token(sub=None), "lacks a claim"),
    "subject is a number": (lambda i: sign_unchecked_claims(i, sub=7), "wrong form|not text"),
    "empty subject": (lambda i: i.make_token(sub=""), "not text"),
    "a logout token": (lambda i: i.make_token(header={"typ": "logout+jwt"}), "not an access token"),
    "a proof of possession": (lambda i: i.make_token(header={"typ": "dpop+jwt"}), "not an access"),
    "nested a thousand deep": (
        lambda i: (
            make_unsigned_token({"alg": "RS256"}, i.make_claims()).split(".")[0]
            + "."
            + jwt.utils.base64url_encode(b'{"a":' * 1000 + b"1" + b"}" * 1000).decode()
            + ".x"
        ),
        "not a JWT|names no issuer",
    ),
    "alg twice, none last": (
        lambda i: sign_bytes(
            b'{"alg":"RS256","kid":"rsa","alg":"none"}', json.dumps(i.make_claims()).encode()
        ),
        "algorithm",
    ),
    "RS256 with a key for PS256": (
        lambda i: sign_with_published_key(i, alg="PS256"),
        "does not have",
    ),
    "a key for signing only": (
        lambda i: sign_with_published_key(i, key_ops=["sign"]),
        "does not have",
    ),
    "ES256 with the id of an RSA key": (
        lambda i: i.make_token(key=EC, algorithm="ES256", kid="rsa"),
        "does not have",
    ),
    "ES256 with a key of another curve": (
        lambda i: publish_key(
            i,
            make_jwk(P384, "p384"),
            make_unsigned_token({"alg": "ES256", "kid": "p384"}, i.make_claims(), b"x" * 96),
        ),
        "does not have",
    ),
    "ECDSA signature of zeros": (lambda i: make_es256_token(i, bytes(64)), "signature"),
    "signature cut short": (lambda i: i.make_token()[:-18], "signature"),
    "claims cut short": (
        lambda i: ".".join(
            part[:-8] if n == 1 else part for n, part in enumerate(i.make_token().split("."))
        ),
        "not a JWT",
    ),
    "a space within": (lambda i: insert_into_claims(i.make_token(), " "), "not a JWT"),
    "no characters of base64 at the end": (lambda i: i.make_token() + "!!!!", "not a JWT"),
    "its own key under our key's id": (
        lambda i: i.make_token(key=OTHER_RSA, header={"jwk": make_jwk(OTHER_RSA, "rsa")}),
        "signature",
    ),
    "key id is empty": (
        lambda i: make_unsigned_token({"alg": "RS256", "kid": ""}, i.make_claims(), b"x"),
        "does not have",
    ),
    "header is a list": (
        lambda i: sign_bytes(b'["RS256"]', json.dumps(i.make_claims()).encode()),
        "not a JWT",
    ),
    "a token in a token": (
        lambda i: sign_bytes(b'{"alg":"RS256","kid":"rsa","cty":"JWT"}', i.make_token().encode()),
        "not a JWT",
    ),
    "claims are not UTF-8": (
        lambda _: sign_bytes(b'{"alg":"RS256","kid":"rsa"}', b'{"iss":"\xff"}'),
        "not a JWT",
    ),
    "issuer twice, ours first": (
        lambda i: sign_changed_claims(i, lambda t: t[:-1] + ', "iss": "https://evil.example"}'),
        "issuer is not accepted",
    ),
    "expiry twice, the past last": (
        lambda i: sign_changed_claims(i, lambda t: t[:-1] + ', "exp": 1}'),
        "expired",
    ),
    "expiry is no number": (
        lambda i: sign_changed_claims(i, lambda t: t[:-1] + ', "exp": NaN}'),
        "wrong form|JWT|expired",
    ),
    "expiry is true": (lambda i: i.make_token(exp=True), "wrong form|expired"),
    "no audience in the list": (lambda i: i.make_token(aud=[]), "lacks a claim"),
    "audience is a list of lists": (lambda i: i.make_token(aud=[[CLIENT]]), "audience|wrong form"),
    "issuer with a NUL": (lambda i: i.make_token(iss=i.url + "\0"), "issuer is not accepted"),
}


# Tokens that Annals refuses only as access tokens, with the pattern of the refusal.
BEARER: dict[str, tuple[TokenMaker, str]] = {
    "client id has a line feed": (
        lambda i: i.make_token(client_id="a\nb"),
        "client id is not text",
    ),
    "an ID token by its type": (lambda i: i.make_token(typ="ID"), "not an access token"),
    "an ID token by its hash": (lambda i: i.make_token(at_hash="x"), "not an access token"),
    "a refresh token": (lambda i: i.make_token(typ="Refresh"), "not an access token"),
    "client id is an object": (lambda i: i.make_token(client_id={"a": 1}), "client id is not text"),
    "bound to a key of the caller": (lambda i: i.make_token(cnf={"jkt": "x"}), "bound to a key"),
    "client id of 256 characters": (lambda i: i.make_token(client_id="a" * 256), "not text"),
}

# One token for each sentence of refusal: the slower tests of whole requests use only these.
ONE_OF_EACH = list({reason: name for name, (_, reason) in (HOSTILE | BEARER).items()}.values())

# Tokens that Annals refuses only as ID tokens.
IDENTITY: dict[str, TokenMaker] = {
    "no nonce": lambda i: i.make_token(nonce=None),
    "another nonce": lambda i: i.make_token(nonce="other"),
    "nonce is a list": lambda i: i.make_token(nonce=[i.extra["nonce"]]),
    "empty nonce": lambda i: i.make_token(nonce=""),
    "another client in azp": lambda i: i.make_token(azp="other"),
    "azp is a list": lambda i: i.make_token(azp=[CLIENT]),
    "two audiences without azp": lambda i: i.make_token(aud=[CLIENT, "other"]),
    "two audiences, azp the other": lambda i: i.make_token(aud=[CLIENT, "other"], azp="other"),
    "an access token by its header": lambda i: i.make_token(header={"typ": "at+jwt"}),
}
