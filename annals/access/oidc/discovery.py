"""Asks an identity provider for its addresses and its signing keys, and remembers them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import jwt
import msgspec
import requests
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings

from annals.access.oidc.providers import Provider
from history.common import http_call
from history.common.worker_shares import PlacePool

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 5.0
MAX_ANSWER_BYTES: Final = 1_048_576


class ProviderDownError(Exception):
    """Raised when a provider does not answer, or answers wrongly. A later attempt may succeed."""


class ProviderRefusesError(ProviderDownError):
    """Raised when a provider answers 400: it does not accept the request."""


log = logging.getLogger(__name__)

REMEMBERED_SECONDS: Final = 600.0
# Minimum time between two calls for keys, whatever tokens arrive, and also while the provider is
# down.
MIN_INTERVAL_SECONDS: Final = 10.0
MAX_KEYS: Final = 100
MIN_RSA_BITS: Final = 2_048
# The accepted algorithms of signatures, by type of key.
ALGORITHMS: Final = {"RSA": ("RS256", "PS256"), "EC": ("ES256",)}
# How many of the 16 threads of a process may call one provider: a hanging call takes 8 s.
MAX_CONCURRENT_CALLS: Final = 4


class SigningKey(NamedTuple):
    """A public key, and the algorithms of the signatures that it may verify."""

    id: str | None
    algorithms: tuple[str, ...]
    key: RSAPublicKey | EllipticCurvePublicKey


class ProviderDiscovery:
    """The metadata and keys of one provider.

    Thread-safe: one thread calls the provider while the others use the remembered metadata and
    keys. `logins` limits how many logins call the provider at once.
    """

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self.logins = PlacePool(MAX_CONCURRENT_CALLS, waiting=0)
        self._waiting = PlacePool(MAX_CONCURRENT_CALLS, waiting=0)
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: dict[str, Any] = {}
        self._keys: tuple[SigningKey, ...] = ()
        self._until = 0.0
        self._asked_at = -MIN_INTERVAL_SECONDS
        self._failure = ""
        self.address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"

    def get_endpoint(self, name: str) -> str:
        """Return an address from the metadata, such as `token_endpoint`.

        Raises:
            ProviderDownError: The metadata were never read, or do not have this address.
        """
        with self._lock:
            self._refresh()
        if not self._metadata:
            raise ProviderDownError(self._failure)
        return _get_address(self._metadata, name)

    def get_known_endpoint(self, name: str) -> str | None:
        """Return an address from the remembered metadata, or None. Does not call the provider."""
        if self._lock.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._metadata.get(name)

    def fetch_authorization_endpoint(self) -> str:
        """Ask the provider for the address where people log in.

        The provider is asked at each login: if it is down, people see a page of Annals instead of
        an error of their browser.

        Raises:
            ProviderDownError: The provider does not answer.
        """
        return _get_address(self._fetch_metadata(), "authorization_endpoint")

    def get_keys(
        self, key_id: str | None, trusted: bool = False, renewed: bool = False
    ) -> tuple[SigningKey, ...]:
        """Return the signing keys that may have signed a token: empty if there are none.

        Keys without an id may have signed any token. If no known key fits, the provider is asked
        for new keys: at most once in MIN_INTERVAL_SECONDS, but always for a trusted token. While
        the provider is down, the remembered keys are used.

        Args:
            key_id: The `kid` of the token. None: any key may have signed the token.
            trusted: Whether the provider itself gave Annals the token.
            renewed: Whether none of the known keys signed the token, so that newer keys are needed.

        Raises:
            ProviderDownError: No keys are known.
            BusyError: MAX_CONCURRENT_CALLS threads already wait for the provider's answer.
        """
        keys = self._list_candidates(key_id)
        if keys and not renewed and self._clock() < self._until:
            return keys
        if not self._lock.acquire(blocking=False):
            if keys and not renewed:
                return keys
            with self._waiting.take_place():
                self._lock.acquire()
        try:
            # Another thread may have fetched the keys while this one waited.
            unknown = not self._list_candidates(key_id) or (
                renewed and self._list_candidates(key_id) == keys
            )
            self._refresh(unknown, 0.0 if trusted else MIN_INTERVAL_SECONDS)
        finally:
            self._lock.release()
        if not self._keys:
            raise ProviderDownError(self._failure or "the provider has no key for signatures")
        return self._list_candidates(key_id)

    def _list_candidates(self, key_id: str | None) -> tuple[SigningKey, ...]:
        if key_id is None:
            return self._keys
        return tuple(key for key in self._keys if key.id in (None, key_id))

    def _refresh(self, force: bool = False, pause: float = MIN_INTERVAL_SECONDS) -> None:
        """Fetch the metadata and keys if they are out of date, or if `force` is set.

        Keeps the remembered ones if the provider does not answer. Does nothing within `pause`
        seconds after the last call.
        """
        now = self._clock()
        if (now < self._until and not force) or now - self._asked_at < pause:
            return
        try:
            try:
                metadata = self._fetch_metadata()
            except ProviderDownError as error:
                if not self._metadata:
                    raise
                # Read the keys in any case: a revoked key must not stay because of the metadata.
                log.warning("the provider's metadata were not read: %s", error)
                metadata = self._metadata
            self._keys = _select_usable_keys(
                self.fetch_json("GET", _get_address(metadata, "jwks_uri"))
            )
            self._metadata, self._until = metadata, self._clock() + REMEMBERED_SECONDS
            self._failure = ""
        except ProviderDownError as error:
            log.warning("the provider's keys were not read: %s", error)
            self._failure = str(error)
        # The pause begins after the call, which can last as long as the pause itself.
        self._asked_at = self._clock()

    def _fetch_metadata(self) -> dict[str, Any]:
        """Fetch the metadata.

        Raises:
            ProviderDownError: The provider does not answer, or the issuer in the metadata is not
                the configured issuer.
        """
        metadata = self.fetch_json("GET", self.address)
        if metadata.get("issuer") != self.provider.issuer:
            raise ProviderDownError(
                f"{self.address} names the issuer {metadata.get('issuer')!r}, but the configured "
                f"issuer is {self.provider.issuer!r}"
            )
        return metadata

    def fetch_json(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """Call the provider and return the JSON object that it answers.

        Raises:
            ProviderRefusesError: The provider answered 400.
            ProviderDownError: The provider did not answer with 200 and a JSON object.
        """
        until = time.monotonic() + CONNECT_SECONDS + READ_SECONDS
        options["timeout"] = (CONNECT_SECONDS, READ_SECONDS)
        try:
            with http_call.HttpSession(self.provider.ca_file) as session:
                status, body = session.ask(method, address, MAX_ANSWER_BYTES, until, **options)
            if status == 400:
                raise ProviderRefusesError(f"{address} answers 400")
            if status != 200:
                raise ProviderDownError(f"{address} answers {status}")
            answer = msgspec.json.decode(body)
        except http_call.TooLargeError:
            raise ProviderDownError(f"the answer of {address} is too large") from None
        except (requests.RequestException, ValueError, RecursionError) as error:
            raise ProviderDownError(f"{address}: {type(error).__name__}") from None
        if not isinstance(answer, dict):
            raise ProviderDownError(f"{address} does not answer with a JSON object")
        return answer


@cache
def get_discoveries() -> dict[str, ProviderDiscovery]:
    """Return the providers of ANNALS_OIDC_FILE by issuer. All threads use the same objects."""
    return {provider.issuer: ProviderDiscovery(provider) for provider in settings.OIDC_PROVIDERS}


def _get_address(metadata: Mapping[str, Any], name: str) -> str:
    if (address := metadata.get(name)) is None:
        raise ProviderDownError(f"the metadata of {metadata['issuer']} have no {name}")
    return str(address)


def _select_usable_keys(key_set: Mapping[str, Any]) -> tuple[SigningKey, ...]:
    """Return the keys of a provider that can verify signatures with the accepted algorithms.

    The result is empty if the provider has revoked all its keys.

    Raises:
        ProviderDownError: The answer is not a set of keys.
    """
    jwks = key_set.get("keys")
    if not isinstance(jwks, list):
        raise ProviderDownError("the provider's answer is not a set of keys")
    keys = (_parse_key(jwk) for jwk in jwks[:MAX_KEYS] if isinstance(jwk, dict))
    return tuple(key for key in keys if key is not None)


def _parse_key(jwk: dict[str, Any]) -> SigningKey | None:
    name, declared_algorithm, operations = (jwk.get(field) for field in ("kid", "alg", "key_ops"))
    if isinstance(operations, list) and "verify" not in operations:
        return None
    # An RSA key without an algorithm may verify both kinds of signatures.
    accepted = ALGORITHMS.get(str(jwk.get("kty")), ())
    fitting = tuple(algorithm for algorithm in accepted if declared_algorithm in (None, algorithm))
    if jwk.get("use", "sig") != "sig" or not fitting or not isinstance(name, str | None):
        return None
    try:
        key = jwt.PyJWK(jwk).key
    except (jwt.PyJWTError, TypeError):
        return None
    if isinstance(key, RSAPublicKey):
        is_strong = key.key_size >= MIN_RSA_BITS
    else:
        is_strong = isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    return SigningKey(name, fitting, key) if is_strong else None
