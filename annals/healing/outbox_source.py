"""Asks the outbox of a service, one answer at a time, within a time and a size.

SourceError   it cannot be asked, does not answer, or refuses everything
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import requests

from annals.healing.answer import Answer, Range, read
from annals.healing.pace import Pace
from annals.healing.sources import Source
from annals.healing.wanted import Document
from history.base import http_call
from history.fallback import WrongAnswerError

# Of one answer: the outbox gives 4 MB, or one document.
MOST_BYTES: Final = 32 * 1024 * 1024
LONGEST_WAIT_SECONDS: Final = 86_400


class SourceError(Exception):
    """The message says why, for operators: no id, no token, no values. wait: seconds for which the
    source asked to be left alone."""

    def __init__(self, text: str, wait: int = 0) -> None:
        super().__init__(text)
        self.wait = wait


class OutboxSource:
    """A source that is an outbox."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.kinds, self.client_ids = source.kinds or None, source.client_ids or None
        self._source = source
        self._pace = Pace(source.requests_per_second)

    def answers(self, document: Document) -> Iterator[Answer]:
        """The answers for the missing versions of a document, in order, each a request. Raises
        SourceError, WrongAnswerError; what was given before counts."""
        for piece in document.missing:
            left: Range | None = piece
            while left is not None:
                answer, left = read(self._body(document, left), left)
                yield answer

    def _body(self, document: Document, asked: Range) -> bytes:
        self._pace.wait()
        source = self._source
        try:
            with http_call.session(source.seconds) as session:
                # No proxy, no .netrc: the token goes to this address and nowhere else.
                session.trust_env = False
                with session.get(
                    f"{source.url.rstrip('/')}/versions",
                    params={
                        "entity": document.entity.name,
                        "id": document.id,
                        "from": str(asked[0]),
                        "to": str(asked[1]),
                    },
                    headers=_headers(source),
                    timeout=source.seconds,
                    verify=str(source.ca_file) if source.ca_file else True,
                    allow_redirects=False,
                    stream=True,
                ) as answer:
                    _check(answer)
                    return http_call.body(answer, MOST_BYTES)
        except http_call.TooLargeError:
            raise WrongAnswerError(f"it answers more than {MOST_BYTES:,} bytes") from None
        except (requests.RequestException, OSError, ValueError) as error:
            raise SourceError(f"it does not answer ({type(error).__name__})") from None


def _headers(source: Source) -> dict[str, str]:
    try:
        token = http_call.token(source.token_file)
    except http_call.TokenError as error:
        raise SourceError(str(error)) from None
    return {
        "Accept": "application/jsonl",
        "Accept-Encoding": "identity",
        "Authorization": f"Bearer {token}",
    }


def _check(answer: requests.Response) -> None:
    """Raises SourceError, or WrongAnswerError for what is wrong with this document only."""
    status = answer.status_code
    if status == 400:
        raise WrongAnswerError("it answers 400: it does not know such a document")
    if 300 <= status < 400:
        raise SourceError("it redirects, which is not followed")
    if status != 200:
        why = {401: ": it does not accept the token", 404: ": no versions are given there"}
        after = answer.headers.get("Retry-After", "")
        wait = int(after) if after.isascii() and after.isdigit() and len(after) < 9 else 0
        raise SourceError(
            f"it answers {status}{why.get(status, '')}", min(wait, LONGEST_WAIT_SECONDS)
        )
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise WrongAnswerError("it compresses its answer, which was not asked for")
