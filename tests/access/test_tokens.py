"""Hostile Bearer and ID tokens, each wrong in one thing, are refused for the right reason."""

import time
from typing import Any

import pytest

from annals.access.oidc import tokens
from annals.access.oidc.discovery import MIN_INTERVAL_SECONDS, ProviderDiscovery, ProviderDownError
from annals.access.oidc.providers import Provider
from tests.access.hostile import BEARER, HOSTILE, IDENTITY, TokenMaker, publish_key
from tests.access.issuer import CLIENT, EC, OTHER_RSA, PROGRAM, RSA, SCOPE, LocalIssuer, make_jwk


@pytest.fixture
def discoveries_by_issuer(issuer: LocalIssuer) -> dict[str, ProviderDiscovery]:
    return {issuer.url: ProviderDiscovery(make_provider(issuer))}


def make_provider(issuer: LocalIssuer, **changed: Any) -> Provider:
    values = {"name": "bank", "title": "Bank", "issuer": issuer.url, "client_id": CLIENT}
    values["programs"] = (PROGRAM,)
    return Provider(**(values | changed))


@pytest.mark.filterwarnings(
    "ignore::jwt.warnings.InsecureKeyLengthWarning"
)  # the weak key is on purpose
@pytest.mark.parametrize("name", HOSTILE | BEARER)
def test_hostile_bearer_token_is_refused(
    name: str, issuer: LocalIssuer, discoveries_by_issuer: dict[str, ProviderDiscovery]
) -> None:
    make, reason = (HOSTILE | BEARER)[name]
    with pytest.raises(tokens.TokenError, match=reason):
        tokens.verify_bearer_token(make(issuer), discoveries_by_issuer)


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize("name", [*HOSTILE, *IDENTITY])
def test_hostile_id_token_is_refused(name: str, issuer: LocalIssuer) -> None:
    issuer.extra = {"nonce": "of-this-login"}
    make = HOSTILE[name][0] if name in HOSTILE else IDENTITY[name]
    discovery = ProviderDiscovery(make_provider(issuer))
    with pytest.raises(tokens.TokenError):
        tokens.verify_id_token(make(issuer), discovery, "of-this-login")


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
def test_valid_token_is_refused_when_it_lacks_the_scope(
    changed: dict[str, object],
    issuer: LocalIssuer,
    discoveries_by_issuer: dict[str, ProviderDiscovery],
) -> None:
    with pytest.raises(tokens.ScopeError):
        tokens.verify_bearer_token(issuer.make_token(**changed), discoveries_by_issuer)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda i: i.make_token(),
        lambda i: i.make_token(algorithm="PS256"),
        lambda i: i.make_token(key=EC, algorithm="ES256", kid="ec"),
        lambda i: i.make_token(key=EC, algorithm="ES256", kid=None),
        lambda i: i.make_token(kid=None),
        lambda i: publish_key(i, make_jwk(OTHER_RSA, "second"), i.make_token(kid=None)),
        lambda i: publish_key(
            i, make_jwk(OTHER_RSA, "second"), i.make_token(key=OTHER_RSA, kid=None)
        ),
        lambda i: publish_key(i, make_jwk(OTHER_RSA, None), i.make_token(key=OTHER_RSA, kid=None)),
        lambda i: publish_key(i, make_jwk(OTHER_RSA, None), i.make_token(key=OTHER_RSA, kid="new")),
        lambda i: publish_key(i, make_jwk(OTHER_RSA, None), i.make_token()),
        lambda i: i.make_token(header={"typ": "at+jwt"}),
        lambda i: i.make_token(header={"typ": "application/at+jwt"}),
        lambda i: i.make_token(aud=["other", CLIENT]),
        lambda i: i.make_token(scope=None, scp=["a", SCOPE]),
        lambda i: i.make_token(exp=int(time.time()) - 5),
        lambda i: i.make_token(iat=int(time.time()) + 5),
    ],
)
def test_valid_token_is_accepted(
    make: TokenMaker, issuer: LocalIssuer, discoveries_by_issuer: dict[str, ProviderDiscovery]
) -> None:
    actual = tokens.verify_bearer_token(make(issuer), discoveries_by_issuer)
    assert (actual.client, actual.issuer) == ("audit-system", issuer.url)


def test_bearer_token_is_refused_when_its_provider_is_declared_only_for_logins(
    issuer: LocalIssuer,
) -> None:
    closed = {issuer.url: ProviderDiscovery(make_provider(issuer, api=False))}
    with pytest.raises(tokens.TokenError, match="issuer is not accepted"):
        tokens.verify_bearer_token(issuer.make_token(), closed)


def test_keys_of_provider_are_fetched_once_for_many_tokens(
    issuer: LocalIssuer, discoveries_by_issuer: dict[str, ProviderDiscovery]
) -> None:
    for _ in range(50):
        tokens.verify_bearer_token(issuer.make_token(), discoveries_by_issuer)
    assert len(issuer.requests) == 2  # one for the metadata, one for the keys


@pytest.mark.parametrize(
    "odd",
    [{"kid": ["odd"]}, {"kty": "oct"}, {"alg": "none"}, {"use": "enc"}, {"key_ops": ["sign"]}],
)
def test_unusable_provider_key_does_not_affect_other_keys(
    odd: dict[str, object], issuer: LocalIssuer
) -> None:
    issuer.keys = [{**make_jwk(OTHER_RSA, "odd"), **odd}, make_jwk(RSA, "rsa")]
    discovery = ProviderDiscovery(make_provider(issuer))
    assert [key.id for key in discovery.get_keys(None)] == ["rsa"]


def test_provider_key_with_null_alg_and_key_ops_is_accepted(issuer: LocalIssuer) -> None:
    issuer.keys = [{**make_jwk(RSA, "rsa"), "key_ops": None, "alg": None}]
    assert [key.id for key in ProviderDiscovery(make_provider(issuer)).get_keys("rsa")] == ["rsa"]


def test_tokens_with_unknown_key_ids_rarely_cause_calls_to_provider(issuer: LocalIssuer) -> None:
    now = [1000.0]
    discovery = ProviderDiscovery(make_provider(issuer), clock=lambda: now[0])
    assert discovery.get_keys("rsa")
    for number in range(50):
        assert discovery.get_keys(f"unknown-{number}") == ()
    assert issuer.requests.count("/realm/keys") == 1
    issuer.keys.append(make_jwk(OTHER_RSA, "new"))
    assert discovery.get_keys("new") == ()
    now[0] += MIN_INTERVAL_SECONDS
    assert [key.id for key in discovery.get_keys("new")] == ["new"]
    assert issuer.requests.count("/realm/keys") == 2


@pytest.mark.parametrize("key_id", [None, "rsa"])
def test_keys_without_ids_are_fetched_again_when_none_of_them_signed_the_token(
    issuer: LocalIssuer, key_id: str | None
) -> None:
    now = [0.0]
    earlier = {issuer.url: ProviderDiscovery(make_provider(issuer), clock=lambda: now[0])}
    issuer.keys = [make_jwk(RSA, None)]
    assert tokens.verify_bearer_token(issuer.make_token(kid=key_id), earlier)
    now[0] += MIN_INTERVAL_SECONDS
    issuer.keys = [make_jwk(OTHER_RSA, None)]
    assert tokens.verify_bearer_token(issuer.make_token(key=OTHER_RSA, kid=key_id), earlier)
    assert issuer.requests.count("/realm/keys") == 2
    for _ in range(20):
        with pytest.raises(tokens.TokenError, match="signature"):
            tokens.verify_bearer_token(issuer.make_token(kid=key_id), earlier)
    assert issuer.requests.count("/realm/keys") == 2


def test_hanging_provider_is_called_at_most_once_in_ten_seconds(issuer: LocalIssuer) -> None:
    """The ten seconds count from the end of a call. Threads that waited for the call do not call
    again."""
    now = [0.0]
    discovery = ProviderDiscovery(make_provider(issuer), clock=lambda: now[0])
    assert discovery.get_keys("rsa")
    now[0] += 4_000  # all cached metadata and keys are out of date
    right = issuer.answer

    def answer_slowly(path: str) -> object:
        now[0] += 5
        return right(path)

    issuer.answer = answer_slowly  # type: ignore[method-assign]
    issuer.down = True
    requested = len(issuer.requests)
    for number in range(16):
        assert discovery.get_keys(f"unknown-{number}") == ()
    assert len(issuer.requests) - requested == 2  # once for the metadata, once for the keys


@pytest.mark.parametrize(
    "values, metadata, refusal, reason",
    [
        ([make_jwk(OTHER_RSA, "new")], {}, tokens.TokenError, "does not have"),
        ([make_jwk(OTHER_RSA, "new")], {"issuer": "another"}, tokens.TokenError, "does not have"),
        ([], {}, ProviderDownError, "no key for signatures"),
    ],
)
def test_revoked_key_is_refused_after_ten_minutes(
    issuer: LocalIssuer, values: Any, metadata: Any, refusal: Any, reason: str
) -> None:
    """The key is also refused if the metadata cannot be used, or if the provider has no other
    key."""
    now = [0.0]
    earlier = {issuer.url: ProviderDiscovery(make_provider(issuer), clock=lambda: now[0])}
    token = issuer.make_token()
    tokens.verify_bearer_token(token, earlier)
    issuer.keys, issuer.metadata = values, metadata
    now[0] += 601
    with pytest.raises(refusal, match=reason):
        tokens.verify_bearer_token(token, earlier)


def test_cached_keys_are_used_when_provider_is_down(issuer: LocalIssuer) -> None:
    now = [0.0]
    earlier = {issuer.url: ProviderDiscovery(make_provider(issuer), clock=lambda: now[0])}
    token = issuer.make_token()
    tokens.verify_bearer_token(token, earlier)
    issuer.down = True
    now[0] += 10_000
    assert tokens.verify_bearer_token(token, earlier).client == "audit-system"


def test_token_is_refused_when_provider_was_never_reached(
    issuer: LocalIssuer, discoveries_by_issuer: dict[str, ProviderDiscovery]
) -> None:
    issuer.down = True
    with pytest.raises(ProviderDownError):
        tokens.verify_bearer_token(issuer.make_token(), discoveries_by_issuer)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
    ],
    ids=str,
)
def test_wrong_provider_metadata_is_refused(
    metadata: dict[str, object],
    issuer: LocalIssuer,
    discoveries_by_issuer: dict[str, ProviderDiscovery],
) -> None:
    issuer.metadata = metadata
    with pytest.raises(ProviderDownError):
        tokens.verify_bearer_token(issuer.make_token(), discoveries_by_issuer)
