"""When a member of a group counts as stuck that has no partitions. Pure: times are passed in, as
seconds of one clock."""

from __future__ import annotations

# While the brokers do not answer, they are asked again after this long.
ASK_AGAIN_SECONDS = 2.0


class Patience:
    """Stuck is a member without partitions although the brokers answered for a whole wait. The time
    in which they do not answer is not counted: librdkafka joins by itself when they are back, and
    needs that wait from then on.

    seconds: the first wait. After each time that it counted as stuck the wait is twice as long:
    members that act in turn would never form a group.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self.begin(now)

    def begin(self, now: float, answer: bool = True) -> None:
        """There are no partitions from now on. answer: False if the brokers may be away."""
        self._since: float | None = now
        self._wait, self._away = self._seconds, not answer

    def end(self) -> None:
        """There are partitions."""
        self._since = None

    def due(self, now: float) -> bool:
        """Whether to ask the brokers: report `unanswered` or `answered` then."""
        wait = min(ASK_AGAIN_SECONDS, self._wait) if self._away else self._wait
        return self._since is not None and now - self._since >= wait

    def unanswered(self, now: float) -> None:
        """The brokers do not answer."""
        self._since, self._away = now, True

    def answered(self, now: float) -> bool:
        """The brokers answer. Returns whether the member is stuck."""
        stuck, self._since, self._away = not self._away, now, False
        if stuck:
            self._wait *= 2
        return stuck
