"""Calls other servers over HTTP with limits of time and size, without following redirects."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import requests
from urllib3.exceptions import HTTPError

from history.common.explained_errors import FileError, read_text

CHUNK: Final = 65_536


class TooLargeError(Exception):
    """Raised if an answer is larger than allowed."""


def read_token(file: Path) -> str:
    """Return the Bearer token in a file.

    Raises:
        FileError: The file cannot be read, or does not have a token. The message does not quote
            the file.
    """
    token = read_text(file).strip()
    if not (token.isascii() and token.isprintable()) or not token or " " in token:
        raise FileError(f"{file} has no token")
    return token


class HttpSession(requests.Session):
    """A session for calls to one server.

    Args:
        ca_file: The certificates that sign the server's certificate. None: the usual ones of this
            machine.
    """

    def __init__(self, ca_file: Path | None = None) -> None:
        super().__init__()
        self._verify = str(ca_file) if ca_file else True
        self.headers["Accept-Encoding"] = "identity"

    def ask(
        self,
        method: str,
        address: str,
        max_bytes: int,
        until: float,
        statuses: Collection[int] = (200,),
        **options: Any,
    ) -> tuple[int, bytes]:
        """Send a request. Return the answer's status, and its body if the status is in `statuses`.

        See read_body for `max_bytes`, `until` and the errors raised.
        """
        options |= {"verify": self._verify, "allow_redirects": False, "stream": True}
        with self.request(method, address, **options) as answer:
            is_expected = answer.status_code in statuses
            return answer.status_code, read_body(answer, max_bytes, until) if is_expected else b""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None, so that requests does not see a redirect.

        Setting allow_redirects to False is not enough: then requests still reads the whole body of
        a redirect, however large it is.
        """


def read_body(answer: requests.Response, max_bytes: int, until: float) -> bytes:
    """Return the body of a streamed answer.

    Args:
        max_bytes: How many bytes the body may have.
        until: The time.monotonic() at which reading must end.

    Raises:
        TooLargeError: The body has more than `max_bytes`.
        requests.Timeout: The body is not complete at `until`.
        requests.ConnectionError: The answer is cut off.
    """
    content = bytearray()
    try:
        # read1 returns the bytes that have arrived; a read of a fixed size could wait past `until`.
        # The bytes stay encoded: to decode them, urllib3 would read more bytes than `max_bytes`.
        while part := answer.raw.read1(CHUNK, decode_content=False):
            content += part
            if len(content) > max_bytes:
                raise TooLargeError
            if time.monotonic() > until:
                raise requests.Timeout
    except HTTPError as error:
        raise requests.ConnectionError(error) from error
    return bytes(content)
