"""One call to a provider: bounded in time and size, and never redirected."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import requests

from annals.access.oidc.providers import Provider
from history import http_call

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 1_048_576


class ProviderDownError(Exception):
    """The provider did not answer, or not as a provider does. Asking again later is right."""


class ProviderRefusesError(ProviderDownError):
    """The provider answers, and says that what it was asked for is wrong (400)."""


def ask(provider: Provider, method: str, address: str, **options: Any) -> dict[str, Any]:
    """The JSON object that the provider answers. Raises ProviderDownError."""
    try:
        with (
            http_call.session(CONNECT_SECONDS + READ_SECONDS) as session,
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
            body = http_call.body(answer, LONGEST_ANSWER)
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
