"""What a provider says of itself."""

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
from history.base import http_call
from history.requests.worker_shares import Share

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 1_048_576


class ProviderDownError(Exception):
    """The provider did not answer, or not as a provider does. Asking again later is right."""


class ProviderRefusesError(ProviderDownError):
    """The provider answers, and says that what it was asked for is wrong (400)."""


log = logging.getLogger(__name__)

REMEMBERED_SECONDS: Final = 600.0
# A token with an unknown key id, or a provider that is down, makes us ask no more often than this.
AGAIN_SECONDS: Final = 10.0
MOST_KEYS: Final = 100
SMALLEST_RSA_BITS: Final = 2_048
# Of signatures, by the kind of key.
ALGORITHMS: Final = {"RSA": ("RS256", "PS256"), "EC": ("ES256",)}
# Of the 16 threads of a process: a call to a provider that hangs takes 8 seconds.
AT_ONCE: Final = 4


class Key(NamedTuple):
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
        self._keys: tuple[Key, ...] = ()
        self._until = 0.0
        self._asked_at = -AGAIN_SECONDS
        self._failure = ""
        self.address = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"

    def endpoint(self, name: str) -> str:
        """The address that the metadata give, as `token_endpoint`. Raises ProviderDownError."""
        with self._lock:
            self._refresh()
        if not self._metadata:
            raise ProviderDownError(self._failure)
        return _address(self._metadata, name)

    def known(self, name: str) -> str | None:
        """The address as endpoint() gives it; None where it is not known."""
        if self._lock.acquire(blocking=False):
            try:
                self._refresh()
            finally:
                self._lock.release()
        return self._metadata.get(name)

    def authorization_endpoint(self) -> str:
        """Where people log in, asked now. Raises ProviderDownError: better on a page of ours than
        as an error of the browser."""
        return _address(self._own(), "authorization_endpoint")

    def keys(
        self, key_id: str | None, trusted: bool = False, renewed: bool = False
    ) -> tuple[Key, ...]:
        """Return the signing keys that may have signed a token: empty if there are none.

        These are the keys of this id, and those to which the provider gives no id. The provider is
        asked for keys that are not known once in AGAIN_SECONDS at most, or at once if `trusted`.
        While the provider is down, remembered keys serve.

        Args:
            key_id: the `kid` of the token. Without one every key may have signed it.
            trusted: the provider itself gave us the token.
            renewed: the known keys did not sign the token; ask the provider for newer ones.

        Raises:
            ProviderDownError: no keys are known.
            BusyError: AT_ONCE threads wait for the provider's answer.
        """
        known = self._candidates(key_id)
        if known and not renewed and self._clock() < self._until:
            return known
        if not self._lock.acquire(blocking=False):
            if known and not renewed:
                return known
            with self._waiting.taken():
                self._lock.acquire()
        try:
            # Another thread may have got the keys while this one waited.
            unknown = not self._candidates(key_id) or (
                renewed and self._candidates(key_id) == known
            )
            self._refresh(unknown, 0.0 if trusted else AGAIN_SECONDS)
        finally:
            self._lock.release()
        if not self._keys:
            raise ProviderDownError(self._failure or "the provider has no key for signatures")
        return self._candidates(key_id)

    def _candidates(self, key_id: str | None) -> tuple[Key, ...]:
        if key_id is None:
            return self._keys
        return tuple(key for key in self._keys if key.id in (None, key_id))

    def _refresh(self, wanted: bool = False, pause: float = AGAIN_SECONDS) -> None:
        """Ask the provider for what is out of date, or wanted. What is remembered stays where it
        does not answer. pause: seconds from the last time on in which it is not asked again."""
        now = self._clock()
        if (now < self._until and not wanted) or now - self._asked_at < pause:
            return
        try:
            try:
                metadata = self._own()
            except ProviderDownError as error:
                if not self._metadata:
                    raise
                # Keys that were taken back must not be accepted because of another address.
                log.warning("metadata not read: %s", error)
                metadata = self._metadata
            self._keys = _usable(self.ask("GET", _address(metadata, "jwks_uri")))
            self._metadata, self._until = metadata, self._clock() + REMEMBERED_SECONDS
            self._failure = ""
        except ProviderDownError as error:
            log.warning("keys not read: %s", error)
            self._failure = str(error)
        # From the end: a call can last as long as the pause, and threads wait for this one.
        self._asked_at = self._clock()

    def _own(self) -> dict[str, Any]:
        """The metadata. Raises ProviderDownError."""
        found = self.ask("GET", self.address)
        if found.get("issuer") != self.provider.issuer:
            raise ProviderDownError(f"{self.address} is of another issuer: {found.get('issuer')!r}")
        return found

    def ask(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        """The JSON object that the provider answers. Raises ProviderDownError."""
        until = time.monotonic() + CONNECT_SECONDS + READ_SECONDS
        options["timeout"] = (CONNECT_SECONDS, READ_SECONDS)
        try:
            with http_call.Session(self.provider.ca_file) as session:
                status, body = session.ask(method, address, LONGEST_ANSWER, until, **options)
            if status == 400:
                raise ProviderRefusesError(f"{address} answers 400")
            if status != 200:
                raise ProviderDownError(f"{address} answers {status}")
            found = msgspec.json.decode(body)
        except http_call.TooLargeError:
            raise ProviderDownError(f"{address} answers too much") from None
        except (requests.RequestException, ValueError, RecursionError) as error:
            raise ProviderDownError(f"{address}: {type(error).__name__}") from None
        if not isinstance(found, dict):
            raise ProviderDownError(f"{address} answers no JSON object")
        return found


@cache
def discoveries() -> dict[str, Discovery]:
    """By issuer, what is known of each provider of ANNALS_OIDC_FILE; one for the process."""
    return {provider.issuer: Discovery(provider) for provider in settings.OIDC_PROVIDERS}


def _address(metadata: Mapping[str, Any], name: str) -> str:
    if (address := metadata.get(name)) is None:
        raise ProviderDownError(f"{metadata['issuer']} names no {name}")
    return str(address)


def _usable(found: Mapping[str, Any]) -> tuple[Key, ...]:
    """The public keys for signatures of accepted algorithms; none where the provider took all back.
    Raises ProviderDownError where this is no set of keys."""
    given = found.get("keys")
    if not isinstance(given, list):
        raise ProviderDownError("the provider gives no set of keys")
    keys = (_key(each) for each in given[:MOST_KEYS] if isinstance(each, dict))
    return tuple(key for key in keys if key is not None)


def _key(given: dict[str, Any]) -> Key | None:
    name, named, operations = (given.get(each) for each in ("kid", "alg", "key_ops"))
    if isinstance(operations, list) and "verify" not in operations:
        return None
    # An RSA key that names no algorithm is for both.
    accepted = ALGORITHMS.get(str(given.get("kty")), ())
    fitting = tuple(each for each in accepted if named in (None, each))
    if given.get("use", "sig") != "sig" or not fitting or not isinstance(name, str | None):
        return None
    try:
        key = jwt.PyJWK(given).key
    except (jwt.PyJWTError, TypeError):
        return None
    if isinstance(key, RSAPublicKey):
        strong = key.key_size >= SMALLEST_RSA_BITS
    else:
        strong = isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    return Key(name, fitting, key) if strong else None
