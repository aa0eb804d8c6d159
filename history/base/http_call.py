"""Calls to other servers: bounded in time and size, and never redirected."""

import time
from pathlib import Path
from typing import Final

import requests
from urllib3.exceptions import HTTPError

CHUNK: Final = 65_536


class TooLargeError(Exception):
    """The answer is larger than it may be."""


class TokenError(Exception):
    """The file of a token has none, or cannot be read. The message quotes nothing of it."""


def token(file: Path) -> str:
    """The Bearer token in a file. Raises TokenError."""
    try:
        found = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        text = f"the file of the token cannot be read ({type(error).__name__})"
        raise TokenError(text) from None
    if not found or not found.isprintable() or " " in found:
        raise TokenError("the file of the token has no token")
    return found


class Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: requests reads the whole body of a redirect, however large, also of one that it is
        not to follow and of an answer that is to be streamed."""


def body(answer: requests.Response, most: int, until: float) -> bytes:
    """The body of a streamed answer. until: a moment of time.monotonic(). Raises TooLargeError
    beyond this many bytes, requests.Timeout after that moment, requests.ConnectionError where the
    answer is cut off."""
    found = bytearray()
    try:
        # Whatever has come: the next read may wait as long as the time limit of the request.
        while part := answer.raw.read1(CHUNK, decode_content=True):
            found += part
            if len(found) > most:
                raise TooLargeError
            if time.monotonic() > until:
                raise requests.Timeout
    except HTTPError as error:
        raise requests.ConnectionError(error) from error
    return bytes(found)
