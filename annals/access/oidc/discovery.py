"""What a provider says of itself."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import jwt
import msgspec
import requests
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings

from annals.access.oidc.providers import Provider
from history.base import http_call
from history.requests.worker_shares import Share

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 1_048_576


class ProviderDownError(Exception):
    """The provider did not answer, or not as a provider does. Asking again later is right."""


class ProviderRefusesError(ProviderDownError):
    """The provider answers, and says that what it was asked for is wrong (400)."""


def ask(provider: Provider, method: str, address: str, **options: Any) -> dict[str, Any]:
    """The JSON object that the provider answers. Raises ProviderDownError."""
    until = time.monotonic() + CONNECT_SECONDS + READ_SECONDS
    try:
        with (
            http_call.Session() as session,
            session.request(
                method,
                address,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                verify=str(provider.ca_file) if provider.ca_file else True,
                allow_redirects=False,
                stream=True,
                **options,
            ) as answer,
        ):
            body = http_call.body(answer, LONGEST_ANSWER, until)
            if answer.status_code == 400:
                raise ProviderRefusesError(f"{address} answers 400")
            if answer.status_code != 200:
                raise ProviderDownError(f"{address} answers {answer.status_code}")
            found = msgspec.json.decode(body)
    except http_call.TooLargeError:
        raise ProviderDownError(f"{address} answers too much") from None
    except (requests.RequestException, ValueError, RecursionError) as error:
        raise ProviderDownError(f"{address}: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ProviderDownError(f"{address} answers no JSON object")
    return found


log = logging.getLogger(__name__)

METADATA_SECONDS: Final = 3_600.0
KEYS_SECONDS: Final = 600.0
# A token with an unknown key id, or a provider that is down, makes us ask no more often than this.
AGAIN_SECONDS: Final = 10.0
MOST_KEYS: Final = 100
SMALLEST_RSA_BITS: Final = 2_048
# Of signatures, by the kind of key.
ALGORITHMS: Final = {"RSA": ("RS256", "PS256"), "EC": ("ES256",)}
# Of the 16 threads of a process: a call to a provider that hangs takes 8 seconds.
AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms of signatures that it may check."""

    id: str | None
    algorithms: tuple[str, ...]
    key: RSAPublicKey | EllipticCurvePublicKey


class Discovery:
    """One provider's metadata and keys. Thread-safe: one thread asks the provider; what is in
    memory is not waited for. logins: taken before a login asks the provider for anything."""

    def __init__(self, provider: Provider, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self.logins = Share(AT_ONCE, waiting=0)
        self._waiting = Share(AT_ONCE, waiting=0)
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: dict[str | None, list[Key]] = {}
        self._keys_until = 0.0
        self._asked_at = -AGAIN_SECONDS
        self._failed_until = 0.0
        self._failure = ""
        self.address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"

    def endpoint(self, name: str) -> str:
        """The address that the metadata give, as `token_endpoint`. Raises ProviderDownError."""
        with self._lock:
            address = self._current_metadata().get(name)
        if address is None:
            raise ProviderDownError(f"{self.provider.issuer} names no {name}")
        return str(address)

    def known(self, name: str) -> str | None:
        """The address as endpoint() gives it; None where it is not known."""
        metadata = self._metadata
        if self._lock.acquire(blocking=False):
            try:
                metadata = self._current_metadata()
            except ProviderDownError as error:
                log.warning("metadata not read: %s", error)
            finally:
                self._lock.release()
        return metadata.get(name)

    def check(self) -> None:
        """Ask the provider now. Raises ProviderDownError: better on a page of ours than as an
        error of the browser."""
        self._own(self.address)

    def keys(self, key_id: str | None, trusted: bool = False) -> list[Key]:
        """The signing keys of this id (None: of tokens that name none); empty: there is none.

        An unknown id is asked for once in AGAIN_SECONDS at most, or at once where it is trusted.
        While the provider is down, remembered keys serve. Raises ProviderDownError where there are
        none, and BusyError where AT_ONCE threads wait.
        """
        known = self._keys.get(key_id)
        if known is not None and self._clock() < self._keys_until:
            return known
        if not self._lock.acquire(blocking=False):
            if known is not None:
                return known
            with self._waiting.taken():
                self._lock.acquire()
        try:
            self._refresh_keys(key_id, 0.0 if trusted else AGAIN_SECONDS)
        finally:
            self._lock.release()
        return self._keys.get(key_id, [])

    def _refresh_keys(self, key_id: str | None, pause: float) -> None:
        now = self._clock()
        if key_id in self._keys and now < self._keys_until:
            return  # another thread was faster
        if now - self._asked_at >= pause:
            try:
                self._fetch_keys()
            except ProviderDownError as error:
                log.warning("keys not refreshed: %s", error)
                self._failure = str(error)
            # From the end: a call can last as long as the pause, and threads wait for this one.
            self._asked_at = self._clock()
        if not self._keys:
            raise ProviderDownError(self._failure or f"{self.provider.issuer} gave no keys")

    def _current_metadata(self) -> dict[str, Any]:
        now = self._clock()
        if now < self._metadata_until:
            return self._metadata
        if now < self._failed_until:
            if self._metadata:
                return self._metadata
            raise ProviderDownError(self._failure)
        try:
            found = self._own(self.address)
        except ProviderDownError as error:
            self._failed_until, self._failure = self._clock() + AGAIN_SECONDS, str(error)
            if self._metadata:
                return self._metadata
            raise
        self._metadata, self._metadata_until = found, now + METADATA_SECONDS
        return self._metadata

    def _own(self, address: str) -> dict[str, Any]:
        found = self.get(address)
        if found.get("issuer") != self.provider.issuer:
            raise ProviderDownError(f"{address} is of another issuer: {found.get('issuer')!r}")
        return found

    def _fetch_keys(self) -> None:
        address = self._current_metadata().get("jwks_uri")
        if address is None:
            raise ProviderDownError(f"{self.provider.issuer} names no jwks_uri")
        given = self.get(address).get("keys")
        if not isinstance(given, list):
            raise ProviderDownError(f"{address} holds no keys")
        keys: dict[str | None, list[Key]] = {}
        for each in given[:MOST_KEYS]:
            if (key := _usable(each)) is not None:
                for name in {key.id, None}:
                    keys.setdefault(name, []).append(key)
        self._keys, self._keys_until = keys, self._clock() + KEYS_SECONDS

    def get(self, address: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """A JSON object from the provider. Raises ProviderDownError."""
        return ask(self.provider, "GET", address, headers=headers)

    def post(self, address: str, form: dict[str, str], **options: Any) -> dict[str, Any]:
        """The JSON object that answers a form. Raises ProviderDownError."""
        return ask(self.provider, "POST", address, data=form, **options)


@cache
def discoveries() -> dict[str, Discovery]:
    """By issuer, what is known of each provider of ANNALS_OIDC_FILE; one for the process."""
    return {provider.issuer: Discovery(provider) for provider in settings.OIDC_PROVIDERS}


def _usable(given: Any) -> Key | None:
    """A public key for signatures of accepted algorithms; None for every other."""
    if not isinstance(given, dict) or given.get("use", "sig") != "sig":
        return None
    operations = given.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    name, kind, named = (given.get(each) for each in ("kid", "kty", "alg"))
    if not isinstance(name, str | None):
        return None
    fitting = tuple(
        each for each in ALGORITHMS.get(str(kind), ()) if named is None or named == each
    )
    if not fitting:
        return None
    try:
        key = jwt.PyJWK(given, algorithm=fitting[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(key, RSAPublicKey):
        strong = key.key_size >= SMALLEST_RSA_BITS
    else:
        strong = isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    return Key(name, fitting, key) if strong else None
