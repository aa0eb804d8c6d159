"""Hostile tokens: each is wrong in one thing. By what is wrong, how it is made and what the refusal
of a Bearer token says."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.access.issuer import CLIENT, EC, OTHER_RSA, RSA, SMALL_RSA, Issuer, jwk, unsigned

NOW = int(time.time())
PUBLIC = RSA.public_key()
PEM = PUBLIC.public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
P384 = ec.generate_private_key(ec.SECP384R1())

Make = Callable[[Issuer], str]


def hs256(issuer: Issuer, key: bytes) -> str:
    """HS256 with a public key for a secret; the library refuses to make one."""
    text = unsigned({"alg": "HS256", "kid": "rsa"}, issuer.claims()).rstrip(".")
    signature = hmac.digest(key, text.encode(), hashlib.sha256)
    return text + "." + jwt.utils.base64url_encode(signature).decode()


def tampered(issuer: Issuer) -> str:
    """Good signature, other claims."""
    head, _, signature = issuer.token().split(".")
    body = unsigned({}, issuer.claims(sub="root")).split(".")[1]
    return f"{head}.{body}.{signature}"


def unsigned_signed(issuer: Issuer, **changed: object) -> str:
    """Signed without the library's own look at the claims."""
    claims = json.dumps(issuer.claims(**changed)).encode()
    return jwt.api_jws.PyJWS().encode(claims, RSA, "RS256", headers={"kid": "rsa"})


def raw(header: bytes, claims: bytes, signed: bool = True) -> str:
    """A token of these bytes, signed with the right key."""
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256).sign(text, RSA)
    return f"{text.decode()}.{jwt.utils.base64url_encode(signature if signed else b'').decode()}"


def with_claims(issuer: Issuer, change: Callable[[str], str]) -> str:
    """Signed with the right key, the JSON of its claims changed as text."""
    return raw(b'{"alg":"RS256","kid":"rsa"}', change(json.dumps(issuer.claims())).encode())


def with_key(issuer: Issuer, key: dict[str, object], token: str) -> str:
    """The token, once the issuer publishes this key too."""
    issuer.keys.append(key)
    return token


def es256(issuer: Issuer, signature: bytes) -> str:
    """With this signature in place of a good one of the EC key."""
    return unsigned({"alg": "ES256", "kid": "ec"}, issuer.claims(), signature)


def of_no_use(issuer: Issuer, **fields: object) -> str:
    """Signed with a key that is published with these fields."""
    key = jwk(OTHER_RSA, "other") | fields
    return with_key(issuer, key, issuer.token(key=OTHER_RSA, kid="other"))


def inserted(token: str, what: str) -> str:
    """With this between two characters of its claims."""
    half = token.index(".") + 10
    return token[:half] + what + token[half:]


HOSTILE: dict[str, tuple[Make, str]] = {
    "nothing": (lambda _: "", "not a JWT"),
    "one word": (lambda _: "abc", "not a JWT"),
    "not ASCII": (lambda i: i.token() + "ё", "not a JWT"),
    "far too long": (lambda i: i.token(filler="x" * 20_000), "too long"),
    "claims are a list": (
        lambda _: unsigned({"alg": "RS256"}, []),  # type: ignore[arg-type]
        "not a JWT",
    ),
    "no issuer": (lambda i: i.token(iss=None), "names no issuer"),
    "issuer is a list": (lambda i: unsigned({"alg": "RS256"}, i.claims(iss=["x"])), "no issuer"),
    "another issuer": (lambda i: i.token(iss="https://evil.example"), "issuer is not accepted"),
    "issued at a number beyond float": (lambda i: i.token(iat=-(10**400)), "too old"),
    "subject has a line feed": (lambda i: i.token(sub="a\nb"), "subject is not text"),
    "subject of 256 characters": (lambda i: i.token(sub="a" * 256), "subject is not text"),
    "alg none": (lambda i: unsigned({"alg": "none", "kid": "rsa"}, i.claims()), "algorithm"),
    "no alg": (lambda i: unsigned({"kid": "rsa"}, i.claims()), "algorithm"),
    "alg is a list": (lambda i: unsigned({"alg": ["RS256"], "kid": "rsa"}, i.claims()), "algor"),
    "HS256 with the public key": (lambda i: hs256(i, PEM), "algorithm"),
    "RS512": (lambda i: i.token(algorithm="RS512"), "algorithm"),
    "no signature": (lambda i: i.token().rpartition(".")[0] + ".", "signature"),
    "other claims under a good signature": (tampered, "signature"),
    "another key under our key's id": (lambda i: i.token(key=OTHER_RSA), "signature"),
    "unknown key id": (lambda i: i.token(kid="unknown"), "does not have"),
    "key id is a number": (
        lambda i: unsigned({"alg": "RS256", "kid": 7}, i.claims()), "not a JWT"),
    "no key id, signed with a key that the issuer does not have": (
        lambda i: i.token(key=OTHER_RSA, kid=None), "signature"),
    "no key id, signed with a key for encryption": (
        lambda i: with_key(i, jwk(OTHER_RSA, None, use="enc"), i.token(key=OTHER_RSA, kid=None)),
        "signature",
    ),
    "an unknown key id, signed with a key of another id": (
        lambda i: with_key(i, jwk(OTHER_RSA, None), i.token(kid="unknown")), "signature"),
    "no key id, RS256 with a key for PS256": (
        lambda i: with_key(
            i, jwk(OTHER_RSA, None, alg="PS256"), i.token(key=OTHER_RSA, kid=None)),
        "signature",
    ),
    "RS256 with the id of an EC key": (lambda i: i.token(kid="ec"), "does not have"),
    "its own key in the header": (
        lambda i: i.token(key=OTHER_RSA, kid="mine", header={"jwk": jwk(OTHER_RSA, "mine")}),
        "does not have",
    ),
    "a place of keys in the header": (
        lambda i: i.token(key=OTHER_RSA, kid="mine", header={"jku": "http://127.0.0.1:9/keys"}),
        "does not have",
    ),
    "a key of 1024 bits": (
        lambda i: with_key(i, jwk(SMALL_RSA, "small"), i.token(key=SMALL_RSA, kid="small")),
        "does not have",
    ),
    "a key for encryption": (
        lambda i: with_key(i, jwk(OTHER_RSA, "enc", use="enc"), i.token(key=OTHER_RSA, kid="enc")),
        "does not have",
    ),
    "a critical extension": (lambda i: i.token(header={"crit": ["x"], "x": 1}), "JWT|extension"),
    "expired": (lambda i: i.token(exp=int(time.time()) - 120), "expired"),
    "never expires": (lambda i: i.token(exp=None), "lacks a claim"),
    "expiry is text": (lambda i: i.token(exp="tomorrow"), "wrong form"),
    "not before tomorrow": (lambda i: i.token(nbf=NOW + 86_400), "not valid yet"),
    "issued tomorrow": (lambda i: i.token(iat=NOW + 86_400, exp=NOW + 90_000), "not valid yet"),
    "issued at no time": (lambda i: i.token(iat=None), "lacks a claim"),
    "issued two days ago": (lambda i: i.token(iat=NOW - 172_800), "too old"),
    "no audience": (lambda i: i.token(aud=None), "lacks a claim"),
    "another audience": (lambda i: i.token(aud="other"), "another audience"),
    "audience is an object": (lambda i: i.token(aud={CLIENT: 1}), "audience|wrong form"),
    "no subject": (lambda i: i.token(sub=None), "lacks a claim"),
    "subject is a number": (lambda i: unsigned_signed(i, sub=7), "wrong form|not text"),
    "empty subject": (lambda i: i.token(sub=""), "not text"),
    "a logout token": (lambda i: i.token(header={"typ": "logout+jwt"}), "not an access token"),
    "a proof of possession": (lambda i: i.token(header={"typ": "dpop+jwt"}), "not an access"),
    "nested a thousand deep": (
        lambda i: (
            unsigned({"alg": "RS256"}, i.claims()).split(".")[0]
            + "."
            + jwt.utils.base64url_encode(b'{"a":' * 1000 + b"1" + b"}" * 1000).decode()
            + ".x"
        ),
        "not a JWT|names no issuer",
    ),
    "alg twice, none last": (
        lambda i: raw(b'{"alg":"RS256","kid":"rsa","alg":"none"}', json.dumps(i.claims()).encode()),
        "algorithm",
    ),
    "RS256 with a key for PS256": (lambda i: of_no_use(i, alg="PS256"), "does not have"),
    "a key for signing only": (lambda i: of_no_use(i, key_ops=["sign"]), "does not have"),
    "ES256 with the id of an RSA key": (
        lambda i: i.token(key=EC, algorithm="ES256", kid="rsa"), "does not have"),
    "ES256 with a key of another curve": (
        lambda i: with_key(
            i, jwk(P384, "p384"), unsigned({"alg": "ES256", "kid": "p384"}, i.claims(), b"x" * 96)
        ),
        "does not have",
    ),
    "ECDSA signature of zeros": (lambda i: es256(i, bytes(64)), "signature"),
    "signature cut short": (lambda i: i.token()[:-18], "signature"),
    "claims cut short": (
        lambda i: ".".join(
            part[:-8] if n == 1 else part for n, part in enumerate(i.token().split("."))
        ),
        "not a JWT",
    ),
    "a space within": (lambda i: inserted(i.token(), " "), "not a JWT"),
    "no characters of base64 at the end": (lambda i: i.token() + "!!!!", "not a JWT"),
    "its own key under our key's id": (
        lambda i: i.token(key=OTHER_RSA, header={"jwk": jwk(OTHER_RSA, "rsa")}), "signature"),
    "key id is empty": (
        lambda i: unsigned({"alg": "RS256", "kid": ""}, i.claims(), b"x"), "does not have"),
    "header is a list": (
        lambda i: raw(b'["RS256"]', json.dumps(i.claims()).encode()), "not a JWT"),
    "a token in a token": (
        lambda i: raw(b'{"alg":"RS256","kid":"rsa","cty":"JWT"}', i.token().encode()), "not a JWT"),
    "claims are not UTF-8": (
        lambda _: raw(b'{"alg":"RS256","kid":"rsa"}', b'{"iss":"\xff"}'), "not a JWT"),
    "issuer twice, ours first": (
        lambda i: with_claims(i, lambda t: t[:-1] + ', "iss": "https://evil.example"}'),
        "issuer is not accepted",
    ),
    "expiry twice, the past last": (
        lambda i: with_claims(i, lambda t: t[:-1] + ', "exp": 1}'), "expired"),
    "expiry is no number": (
        lambda i: with_claims(i, lambda t: t[:-1] + ', "exp": NaN}'), "wrong form|JWT|expired"),
    "expiry is true": (lambda i: i.token(exp=True), "wrong form|expired"),
    "no audience in the list": (lambda i: i.token(aud=[]), "lacks a claim"),
    "audience is a list of lists": (lambda i: i.token(aud=[[CLIENT]]), "audience|wrong form"),
    "issuer with a NUL": (lambda i: i.token(iss=i.url + "\0"), "issuer is not accepted"),
}  # fmt: skip


# Wrong only as access tokens.
BEARER: dict[str, tuple[Make, str]] = {
    "client id has a line feed": (lambda i: i.token(client_id="a\nb"), "client id is not text"),
    "an ID token by its type": (lambda i: i.token(typ="ID"), "not an access token"),
    "an ID token by its hash": (lambda i: i.token(at_hash="x"), "not an access token"),
    "a refresh token": (lambda i: i.token(typ="Refresh"), "not an access token"),
    "client id is an object": (lambda i: i.token(client_id={"a": 1}), "client id is not text"),
    "bound to a key of the caller": (lambda i: i.token(cnf={"jkt": "x"}), "bound to a key"),
    "client id of 256 characters": (lambda i: i.token(client_id="a" * 256), "not text"),
}

# One for each sentence of a refusal: where tokens arrive, each sentence is tried once.
ONE_OF_EACH = list({why: name for name, (_, why) in (HOSTILE | BEARER).items()}.values())

# Wrong only as ID tokens.
IDENTITY: dict[str, Make] = {
    "no nonce": lambda i: i.token(nonce=None),
    "another nonce": lambda i: i.token(nonce="other"),
    "nonce is a list": lambda i: i.token(nonce=[i.extra["nonce"]]),
    "empty nonce": lambda i: i.token(nonce=""),
    "another client in azp": lambda i: i.token(azp="other"),
    "azp is a list": lambda i: i.token(azp=[CLIENT]),
    "two audiences without azp": lambda i: i.token(aud=[CLIENT, "other"]),
    "two audiences, azp the other": lambda i: i.token(aud=[CLIENT, "other"], azp="other"),
    "an access token by its header": lambda i: i.token(header={"typ": "at+jwt"}),
}
