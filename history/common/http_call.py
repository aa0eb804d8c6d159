"""Calls to other servers: bounded in time and size, and never redirected."""

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import requests
from urllib3.exceptions import HTTPError

from history.common.complaints import FileError, read_text

CHUNK: Final = 65_536


class TooLargeError(Exception):
    """The answer is larger than it may be."""


def read_token(file: Path) -> str:
    """The Bearer token in a file. Raises FileError, which quotes nothing of it."""
    token = read_text(file).strip()
    if not (token.isascii() and token.isprintable()) or not token or " " in token:
        raise FileError(f"{file} has no token")
    return token


class HttpSession(requests.Session):
    """Calls to one server. ca_file: who signs its certificate; None: who signs all others."""

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
        """The status of an answer, and its body if the status is one of these. most, until: as in
        body(), which says what this raises."""
        options |= {"verify": self._verify, "allow_redirects": False, "stream": True}
        with self.request(method, address, **options) as answer:
            is_expected = answer.status_code in statuses
            return answer.status_code, read_body(answer, max_bytes, until) if is_expected else b""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: requests reads the whole body of a redirect, however large, also of one that it is
        not to follow and of an answer that is to be streamed."""


def read_body(answer: requests.Response, max_bytes: int, until: float) -> bytes:
    """The body of a streamed answer. until: a moment of time.monotonic(). Raises TooLargeError
    beyond this many bytes, requests.Timeout after that moment, requests.ConnectionError where the
    answer is cut off."""
    content = bytearray()
    try:
        # Whatever has come: the next read may wait as long as the time limit of the request.
        # Not decoded: urllib3 reads on until compressed bytes give something, and past our limits.
        while part := answer.raw.read1(CHUNK, decode_content=False):
            content += part
            if len(content) > max_bytes:
                raise TooLargeError
            if time.monotonic() > until:
                raise requests.Timeout
    except HTTPError as error:
        raise requests.ConnectionError(error) from error
    return bytes(content)
