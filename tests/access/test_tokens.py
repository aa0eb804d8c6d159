"""Hostile Bearer tokens: each is wrong in one thing, and each is refused with the right answer."""

import time
from typing import Any

import pytest

from annals.access.oidc import tokens
from annals.access.oidc.discovery import AGAIN_SECONDS, Discovery, ProviderDownError
from annals.access.oidc.providers import Provider
from tests.access.hostile import BEARER, HOSTILE, IDENTITY, Make, with_key
from tests.access.issuer import CLIENT, EC, OTHER_RSA, PROGRAM, RSA, SCOPE, Issuer, jwk


@pytest.fixture
def known(issuer: Issuer) -> dict[str, Discovery]:
    return {issuer.url: Discovery(provider(issuer))}


def provider(issuer: Issuer, **changed: Any) -> Provider:
    given = {"name": "bank", "title": "Bank", "issuer": issuer.url, "client_id": CLIENT}
    given["programs"] = (PROGRAM,)
    return Provider(**(given | changed))


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")  # made on purpose
@pytest.mark.parametrize("name", HOSTILE | BEARER)
def test_a_hostile_token_is_refused(name: str, issuer: Issuer, known: dict[str, Discovery]) -> None:
    make, why = (HOSTILE | BEARER)[name]
    with pytest.raises(tokens.TokenError, match=why):
        tokens.bearer(make(issuer), known)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("name", [*HOSTILE, *IDENTITY])
def test_a_hostile_id_token_is_refused(name: str, issuer: Issuer) -> None:
    issuer.extra = {"nonce": "of-this-login"}
    make = HOSTILE[name][0] if name in HOSTILE else IDENTITY[name]
    discovery = Discovery(provider(issuer))
    with pytest.raises(tokens.TokenError):
        tokens.identity(make(issuer), discovery, "of-this-login")


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
        lambda i: with_key(i, jwk(OTHER_RSA, "second"), i.token(kid=None)),
        lambda i: with_key(i, jwk(OTHER_RSA, "second"), i.token(key=OTHER_RSA, kid=None)),
        lambda i: with_key(i, jwk(OTHER_RSA, None), i.token(key=OTHER_RSA, kid=None)),
        lambda i: with_key(i, jwk(OTHER_RSA, None), i.token(key=OTHER_RSA, kid="new")),
        lambda i: with_key(i, jwk(OTHER_RSA, None), i.token()),
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


@pytest.mark.parametrize(
    "odd",
    [{"kid": ["odd"]}, {"kty": "oct"}, {"alg": "none"}, {"use": "enc"}, {"key_ops": ["sign"]}],
)
def test_a_key_that_is_of_no_use_leaves_the_others(odd: dict[str, object], issuer: Issuer) -> None:
    issuer.keys = [{**jwk(OTHER_RSA, "odd"), **odd}, jwk(RSA, "rsa")]
    discovery = Discovery(provider(issuer))
    assert [key.id for key in discovery.keys(None)] == ["rsa"]


def test_a_key_may_say_that_it_names_no_uses(issuer: Issuer) -> None:
    issuer.keys = [{**jwk(RSA, "rsa"), "key_ops": None, "alg": None}]
    assert [key.id for key in Discovery(provider(issuer)).keys("rsa")] == ["rsa"]


def test_unknown_key_ids_ask_the_provider_rarely(issuer: Issuer) -> None:
    now = [1000.0]
    discovery = Discovery(provider(issuer), clock=lambda: now[0])
    assert discovery.keys("rsa")
    for number in range(50):
        assert discovery.keys(f"unknown-{number}") == ()
    assert issuer.asked.count("/realm/keys") == 1
    issuer.keys.append(jwk(OTHER_RSA, "new"))
    assert discovery.keys("new") == ()
    now[0] += AGAIN_SECONDS
    assert [key.id for key in discovery.keys("new")] == ["new"]
    assert issuer.asked.count("/realm/keys") == 2


@pytest.mark.parametrize("key_id", [None, "rsa"])
def test_keys_without_ids_are_renewed_when_none_of_them_signed_the_token(
    issuer: Issuer, key_id: str | None
) -> None:
    now = [0.0]
    known = {issuer.url: Discovery(provider(issuer), clock=lambda: now[0])}
    issuer.keys = [jwk(RSA, None)]
    assert tokens.bearer(issuer.token(kid=key_id), known)
    now[0] += AGAIN_SECONDS
    issuer.keys = [jwk(OTHER_RSA, None)]
    assert tokens.bearer(issuer.token(key=OTHER_RSA, kid=key_id), known)
    assert issuer.asked.count("/realm/keys") == 2
    for _ in range(20):
        with pytest.raises(tokens.TokenError, match="signature"):
            tokens.bearer(issuer.token(kid=key_id), known)
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
        assert discovery.keys(f"unknown-{number}") == ()
    assert len(issuer.asked) - asked == 2  # once for the metadata, once for the keys


@pytest.mark.parametrize(
    "given, metadata, refusal, why",
    [
        ([jwk(OTHER_RSA, "new")], {}, tokens.TokenError, "does not have"),
        ([jwk(OTHER_RSA, "new")], {"issuer": "another"}, tokens.TokenError, "does not have"),
        ([], {}, ProviderDownError, "no key for signatures"),
    ],
)
def test_a_key_that_was_taken_back_is_refused_after_ten_minutes(
    issuer: Issuer, given: Any, metadata: Any, refusal: Any, why: str
) -> None:
    """Also while the metadata fail, and where the provider has no other key."""
    now = [0.0]
    known = {issuer.url: Discovery(provider(issuer), clock=lambda: now[0])}
    token = issuer.token()
    tokens.bearer(token, known)
    issuer.keys, issuer.metadata = given, metadata
    now[0] += 601
    with pytest.raises(refusal, match=why):
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
