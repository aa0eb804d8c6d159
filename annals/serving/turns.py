"""Who gets the next free thread: one client has at most a part of them, however much it asks."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from django.http.cookie import parse_cookie

from annals.access.address import Network, client, network

# Schemes whose text is the login under /api/.
_PROOFS: Final = ("bearer", "basic")


class Work(Protocol):
    """What a thread does, as waitress sees it."""

    def service(self) -> None: ...

    def cancel(self) -> None: ...


class Turns:
    """Passes work on to a queue, of one client at most `most` at a time; the rest waits here, in
    its order, and takes no thread. Thread-safe."""

    def __init__(self, give: Callable[[Work], None], most: int) -> None:
        self._give = give
        self._most = most
        self._given: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[Work]] = {}
        self._lock = threading.Lock()

    def add(self, work: Work, client: Hashable) -> None:
        with self._lock:
            if self._given[client] >= self._most:
                self._waiting.setdefault(client, deque()).append(work)
                return
            self._given[client] += 1
        self._give(_Turn(self, work, client))

    def done(self, client: Hashable) -> None:
        """Some work of this client is done: its next has a turn, after what others asked before."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None:
                self._given[client] -= 1
                if not self._given[client]:
                    del self._given[client]
                return
            following = waiting.popleft()
            if not waiting:
                del self._waiting[client]
        self._give(_Turn(self, following, client))

    def cancel(self) -> None:
        """Forget what waits."""
        with self._lock:
            found = [work for waiting in self._waiting.values() for work in waiting]
            self._waiting.clear()
        for work in found:
            work.cancel()


class _Turn:
    def __init__(self, turns: Turns, work: Work, client: Hashable) -> None:
        self._turns = turns
        self._work = work
        self._client = client

    def service(self) -> None:
        try:
            self._work.service()
        finally:
            self._turns.done(self._client)

    def cancel(self) -> None:
        self._work.cancel()


@dataclass(frozen=True, slots=True)
class Clients:
    """Tells clients apart. session: the name of the cookie. proxies: those that are trusted."""

    session: str = "sessionid"
    proxies: Sequence[Network] = ()

    def of(self, path: str, headers: Mapping[str, str], peer: str) -> Hashable:
        """Who asks, as far as it can be known before anything is verified: the text that proves the
        login, else the address. It gives nobody a right.

        headers: by names as CGI has them, without HTTP_. Whoever has many proofs of one login
        counts as many here, and as one in history.shares.
        """
        scheme, _, proof = headers.get("AUTHORIZATION", "").strip().partition(" ")
        if path.startswith("/api/") and scheme.lower() in _PROOFS:
            return "proof", proof.strip()
        key = parse_cookie(headers.get("COOKIE", "")).get(self.session)
        if key:
            return "session", key
        return "address", network(client(peer, headers.get("X_FORWARDED_FOR", ""), self.proxies))
