"""settings.OUTBOX, read once and checked; and what settings.INBOX has in common with it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from random import SystemRandom
from typing import ClassVar, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed

from outbox.days import MOST_DAYS
from outbox.errors import WrongSettings

ID_LENGTH = 32
NAME_LENGTH = 64

KafkaSettings = Mapping[str, str | int | float | bool]
Read = TypeVar("Read", bound="Common")


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """One dictionary in the settings; each field is a key of it, in capitals. kafka: settings of
    librdkafka. keep_days: how long sent versions stay, or the inbox knows what it has processed, at
    least. retry_first_seconds, retry_most_seconds: pauses after a failure."""

    NAME: ClassVar[str]

    kafka: KafkaSettings = field(default_factory=dict)
    keep_days: int = 7
    retry_first_seconds: float = 1.0
    retry_most_seconds: float = 300.0

    def __post_init__(self) -> None:
        self._require(
            isinstance(self.kafka, Mapping), "KAFKA must map names of librdkafka to values"
        )
        days = f"KEEP_DAYS must be a whole number from 1 to {MOST_DAYS}"
        self._require(isinstance(self.keep_days, int) and 1 <= self.keep_days <= MOST_DAYS, days)
        self._least("retry_first_seconds", 0.01)
        self._least("retry_most_seconds", self.retry_first_seconds)

    @classmethod
    def read(cls: type[Read], given: object) -> Read:
        """Raises WrongSettings."""
        if not isinstance(given, Mapping):
            raise WrongSettings(f"settings.{cls.NAME}: must be a dictionary")
        known = {each.name.upper(): each for each in fields(cls)}
        unknown = [str(name) for name in given if name not in known]
        cls._require(not unknown, f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
        missing = [
            name
            for name, each in known.items()
            if each.default is MISSING and each.default_factory is MISSING and name not in given
        ]
        cls._require(not missing, f"missing: {', '.join(missing)}")
        return cls(**{known[name].name: value for name, value in given.items()})

    @classmethod
    def _require(cls, right: bool, sentence: str) -> None:
        """sentence: what must be."""
        if not right:
            raise WrongSettings(f"settings.{cls.NAME}: {sentence}")

    def _least(self, name: str, least: float) -> None:
        """A number with a lower bound."""
        given = getattr(self, name)
        right = isinstance(given, int | float) and given >= least
        self._require(right, f"{name.upper()} must be {least:g} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf(Common):
    """settings.OUTBOX. client_id: name of the service in its messages. topics: topic by entity.
    send_unchanged: record a version also if the document is the same as before. lease_seconds: a
    relay that shows no sign of life for so long loses its buckets."""

    NAME = "OUTBOX"

    client_id: str
    topics: Mapping[str, str]
    send_unchanged: bool = False
    lease_seconds: float = 5.0

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        self._require(
            isinstance(self.client_id, str) and 0 < len(self.client_id) <= NAME_LENGTH,
            f"CLIENT_ID must be a text of 1 to {NAME_LENGTH} characters",
        )
        self._require(
            isinstance(self.topics, Mapping) and all("/" not in each for each in self.topics),
            "TOPICS must map each entity to the name of its topic; an entity has no slash",
        )
        self._least("lease_seconds", 1)


def once(of: type[Read]) -> Callable[[], Read]:
    """A function that reads the settings of this service when it is first called, and again after
    a test has changed them. It raises WrongSettings."""

    @lru_cache(maxsize=1)
    def conf() -> Read:
        return of.read(getattr(settings, of.NAME, {}))

    def forget(*, setting: str, **_: object) -> None:
        if setting == of.NAME:
            conf.cache_clear()

    setting_changed.connect(forget, weak=False, dispatch_uid=f"outbox.{of.NAME}")
    return conf


def settings_errors(read: Callable[[], Common], app: str) -> list[CheckMessage]:
    """What a system check says of settings that are wrong."""
    try:
        read()
    except WrongSettings as error:
        return [Error(str(error), hint=f"See docs/{app}.md.", id=f"{app}.E001")]
    return []


conf = once(Conf)
_RANDOM = SystemRandom()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds: twice as long after each failure, up to `most`. Half of a pause is
    random."""

    first: float
    most: float

    def pause(self, attempts: int) -> float:
        """The pause after this many failures in a row, one or more."""
        # 2 to the 60th is longer than any limit, and does not overflow.
        longest = min(self.most, self.first * 2.0 ** min(attempts - 1, 60))
        return longest * _RANDOM.uniform(0.5, 1)
