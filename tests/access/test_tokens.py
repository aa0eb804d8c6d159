"""Hostile Bearer tokens: each is wrong in one thing, and each is refused with the right answer."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from annals.access.oidc import tokens
from annals.access.oidc.discovery import AGAIN_SECONDS, Discovery, ProviderDownError
from annals.access.oidc.providers import Provider
from tests.access.issuer import CLIENT, EC, OTHER_RSA, RSA, SCOPE, SMALL_RSA, Issuer, jwk, unsigned

NOW = int(time.time())
PEM = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture
def known(issuer: Issuer) -> dict[str, Discovery]:
    return {issuer.url: Discovery(provider(issuer))}


def provider(issuer: Issuer, **changed: Any) -> Provider:
    given = {"name": "bank", "title": "Bank", "issuer": issuer.url, "client_id": CLIENT}
    return Provider(**(given | changed))


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


Make = Callable[[Issuer], str]

HOSTILE: dict[str, tuple[Make, str]] = {
    "nothing": (lambda _: "", "not a JWT"),
    "one word": (lambda _: "abc", "not a JWT"),
    "two parts": (lambda i: i.token().rpartition(".")[0], "not a JWT"),
    "four parts": (lambda i: i.token() + ".x", "not a JWT"),
    "encrypted, five parts": (lambda _: "a.b.c.d.e", "not a JWT"),
    "not base64": (lambda _: "!.!.!", "not a JWT"),
    "not ASCII": (lambda i: i.token() + "ё", "not a JWT"),
    "a NUL": (lambda i: "\0" + i.token(), "not a JWT"),
    "far too long": (lambda i: i.token(filler="x" * 20_000), "too long"),
    "claims are a list": (
        lambda _: unsigned({"alg": "RS256"}, []),  # type: ignore[arg-type]
        "not a JWT",
    ),
    "no issuer": (lambda i: i.token(iss=None), "names no issuer"),
    "issuer is a list": (lambda i: unsigned({"alg": "RS256"}, i.claims(iss=["x"])), "no issuer"),
    "another issuer": (lambda i: i.token(iss="https://evil.example"), "issuer is not accepted"),
    "issued at a number beyond float": (lambda i: i.token(iat=-(10**400)), "too old"),
    "subject has a NUL": (lambda i: i.token(sub="a\0b"), "subject is not text"),
    "subject has a line feed": (lambda i: i.token(sub="a\nb"), "subject is not text"),
    "subject of 256 characters": (lambda i: i.token(sub="a" * 256), "subject is not text"),
    "client id has a line feed": (lambda i: i.token(client_id="a\nb"), "client id is not text"),
    "issuer with a slash more": (lambda i: i.token(iss=i.url + "/"), "issuer is not accepted"),
    "issuer in other case": (lambda i: i.token(iss=i.url.upper()), "issuer is not accepted"),
    "alg none": (lambda i: unsigned({"alg": "none", "kid": "rsa"}, i.claims()), "algorithm"),
    "alg NONE": (lambda i: unsigned({"alg": "NoNe", "kid": "rsa"}, i.claims()), "algorithm"),
    "no alg": (lambda i: unsigned({"kid": "rsa"}, i.claims()), "algorithm"),
    "alg is a list": (lambda i: unsigned({"alg": ["RS256"], "kid": "rsa"}, i.claims()), "algor"),
    "HS256 with the public key": (lambda i: hs256(i, PEM), "algorithm"),
    "RS512": (lambda i: i.token(algorithm="RS512"), "algorithm"),
    "no signature": (lambda i: i.token().rpartition(".")[0] + ".", "signature"),
    "other claims under a good signature": (tampered, "signature"),
    "another key under our key's id": (lambda i: i.token(key=OTHER_RSA), "signature"),
    "unknown key id": (lambda i: i.token(kid="unknown"), "does not have"),
    "key id is a number": (
        lambda i: unsigned({"alg": "RS256", "kid": 7}, i.claims()),
        "not a JWT",
    ),
    "no key id though there are several keys": (
        lambda i: i.keys.append(jwk(OTHER_RSA, "second")) or i.token(kid=None),  # type: ignore[func-returns-value]
        "does not have",
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
        lambda i: i.keys.append(jwk(SMALL_RSA, "small")) or i.token(key=SMALL_RSA, kid="small"),  # type: ignore[func-returns-value]
        "does not have",
    ),
    "a key for encryption": (
        lambda i: (
            i.keys.append(jwk(OTHER_RSA, "enc", use="enc"))  # type: ignore[func-returns-value]
            or i.token(key=OTHER_RSA, kid="enc")
        ),
        "does not have",
    ),
    "a critical extension": (lambda i: i.token(header={"crit": ["x"], "x": 1}), "JWT|extension"),
    "expired": (lambda i: i.token(exp=int(time.time()) - 120), "expired"),
    "never expires": (lambda i: i.token(exp=None), "lacks a claim"),
    "expiry is text": (lambda i: i.token(exp="tomorrow"), "wrong form"),
    "expiry is a list": (lambda i: i.token(exp=[NOW + 100]), "wrong form"),
    "not before tomorrow": (lambda i: i.token(nbf=NOW + 86_400), "not valid yet"),
    "issued tomorrow": (lambda i: i.token(iat=NOW + 86_400, exp=NOW + 90_000), "not valid yet"),
    "issued at no time": (lambda i: i.token(iat=None), "lacks a claim"),
    "issued two days ago": (lambda i: i.token(iat=NOW - 172_800), "too old"),
    "no audience": (lambda i: i.token(aud=None), "lacks a claim"),
    "another audience": (lambda i: i.token(aud="other"), "another audience"),
    "audience begins like ours": (lambda i: i.token(aud=CLIENT + "-x"), "another audience"),
    "audience is an object": (lambda i: i.token(aud={CLIENT: 1}), "audience|wrong form"),
    "no subject": (lambda i: i.token(sub=None), "lacks a claim"),
    "subject is a number": (lambda i: unsigned_signed(i, sub=7), "wrong form|not text"),
    "empty subject": (lambda i: i.token(sub=""), "not text"),
    "an ID token by its type": (lambda i: i.token(typ="ID"), "not an access token"),
    "an ID token by its hash": (lambda i: i.token(at_hash="x"), "not an access token"),
    "a refresh token": (lambda i: i.token(typ="Refresh"), "not an access token"),
    "a logout token": (lambda i: i.token(header={"typ": "logout+jwt"}), "not an access token"),
    "a proof of possession": (lambda i: i.token(header={"typ": "dpop+jwt"}), "not an access"),
    "client id is an object": (lambda i: i.token(client_id={"a": 1}), "client id is not text"),
    "nested a thousand deep": (
        lambda i: (
            unsigned({"alg": "RS256"}, i.claims()).split(".")[0]
            + "."
            + jwt.utils.base64url_encode(b'{"a":' * 1000 + b"1" + b"}" * 1000).decode()
            + ".x"
        ),
        "not a JWT|names no issuer",
    ),
}


def unsigned_signed(issuer: Issuer, **changed: object) -> str:
    """Signed without the library's own look at the claims."""
    claims = json.dumps(issuer.claims(**changed)).encode()
    return jwt.api_jws.PyJWS().encode(claims, RSA, "RS256", headers={"kid": "rsa"})


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # made on purpose
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused(name: str, issuer: Issuer, known: dict[str, Discovery]) -> None:
    make, why = HOSTILE[name]
    with pytest.raises(tokens.TokenError, match=why):
        tokens.bearer(make(issuer), known)


@pytest.mark.parametrize(
    "changed",
    [
        {"scope": None},
        {"scope": ""},
        {"scope": "openid"},
        {"scope": SCOPE.upper()},
        {"scope": SCOPE + "-x"},
        {"scope": 7},
        {"scope": None, "scp": [7, None]},
        {"scope": {SCOPE: True}},
    ],
    ids=str,
)
def test_a_good_token_without_the_scope(
    changed: dict[str, object], issuer: Issuer, known: dict[str, Discovery]
) -> None:
    with pytest.raises(tokens.ScopeError):
        tokens.bearer(issuer.token(**changed), known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda i: i.token(),
        lambda i: i.token(algorithm="PS256"),
        lambda i: i.token(key=EC, algorithm="ES256", kid="ec"),
        lambda i: i.token(key=EC, algorithm="ES256", kid=None),
        lambda i: i.token(kid=None),
        lambda i: i.token(header={"typ": "at+jwt"}),
        lambda i: i.token(header={"typ": "application/at+jwt"}),
        lambda i: i.token(aud=["other", CLIENT]),
        lambda i: i.token(scope=None, scp=["a", SCOPE]),
        lambda i: i.token(exp=int(time.time()) - 5),
        lambda i: i.token(iat=int(time.time()) + 5),
    ],
)
def test_a_good_token_is_accepted(make: Make, issuer: Issuer, known: dict[str, Discovery]) -> None:
    found = tokens.bearer(make(issuer), known)
    assert (found.client, found.issuer) == ("audit-system", issuer.url)


def test_a_provider_for_login_only_gives_no_access(issuer: Issuer) -> None:
    closed = {issuer.url: Discovery(provider(issuer, api=False))}
    with pytest.raises(tokens.TokenError, match="issuer is not accepted"):
        tokens.bearer(issuer.token(), closed)


def test_the_provider_is_not_asked_for_each_token(
    issuer: Issuer, known: dict[str, Discovery]
) -> None:
    for _ in range(50):
        tokens.bearer(issuer.token(), known)
    assert len(issuer.asked) == 2  # its metadata and its keys


def test_unknown_key_ids_ask_the_provider_rarely(issuer: Issuer) -> None:
    now = [1000.0]
    discovery = Discovery(provider(issuer), clock=lambda: now[0])
    assert discovery.keys("rsa")
    for number in range(50):
        assert discovery.keys(f"unknown-{number}") == []
    assert issuer.asked.count("/realm/keys") == 1
    issuer.keys.append(jwk(OTHER_RSA, "new"))
    assert discovery.keys("new") == []
    now[0] += AGAIN_SECONDS
    assert [key.id for key in discovery.keys("new")] == ["new"]
    assert issuer.asked.count("/realm/keys") == 2


def test_a_provider_that_hangs_is_asked_by_one_thread_in_ten_seconds(issuer: Issuer) -> None:
    """The pause counts from the end of a call. Threads that waited for it do not ask again."""
    now = [0.0]
    discovery = Discovery(provider(issuer), clock=lambda: now[0])
    assert discovery.keys("rsa")
    now[0] += 4_000  # all that is remembered is out of date
    right = issuer.answer

    def slow(path: str) -> object:
        now[0] += 5
        return right(path)

    issuer.answer = slow  # type: ignore[method-assign]
    issuer.down = True
    asked = len(issuer.asked)
    for number in range(16):
        assert discovery.keys(f"unknown-{number}") == []
    assert len(issuer.asked) - asked == 2  # for the metadata and for the keys


def test_one_login_at_a_time_looks_whether_the_provider_answers(issuer: Issuer) -> None:
    discovery = Discovery(provider(issuer))
    discovery.check()
    right, hanging, go_on = issuer.answer, threading.Event(), threading.Event()

    def hang(path: str) -> object:
        hanging.set()
        go_on.wait(20)
        return right(path)

    issuer.answer = hang  # type: ignore[method-assign]
    first = threading.Thread(target=discovery.check)
    first.start()
    assert hanging.wait(20)
    asked = len(issuer.asked)
    for _ in range(16):
        discovery.check()
    assert len(issuer.asked) == asked
    go_on.set()
    first.join(20)


def test_a_key_that_was_taken_back_is_refused_after_an_hour(issuer: Issuer) -> None:
    now = [0.0]
    known = {issuer.url: Discovery(provider(issuer), clock=lambda: now[0])}
    token = issuer.token()
    tokens.bearer(token, known)
    issuer.keys = [jwk(OTHER_RSA, "new")]
    now[0] += 3_601
    with pytest.raises(tokens.TokenError, match="does not have"):
        tokens.bearer(token, known)


def test_a_provider_that_goes_down_does_not_lock_its_clients_out(issuer: Issuer) -> None:
    now = [0.0]
    known = {issuer.url: Discovery(provider(issuer), clock=lambda: now[0])}
    token = issuer.token()
    tokens.bearer(token, known)
    issuer.down = True
    now[0] += 10_000
    assert tokens.bearer(token, known).client == "audit-system"


def test_a_provider_that_was_never_reached(issuer: Issuer, known: dict[str, Discovery]) -> None:
    issuer.down = True
    with pytest.raises(ProviderDownError):
        tokens.bearer(issuer.token(), known)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": None},
        {"jwks_uri": "http://evil.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
    ],
    ids=str,
)
def test_metadata_that_cannot_be_trusted(
    metadata: dict[str, object], issuer: Issuer, known: dict[str, Discovery]
) -> None:
    issuer.metadata = metadata
    with pytest.raises(ProviderDownError):
        tokens.bearer(issuer.token(), known)
