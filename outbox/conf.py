"""Reads and checks settings.OUTBOX, and the keys that settings.INBOX shares with it."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from random import SystemRandom
from typing import ClassVar, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.signals import setting_changed

from outbox.database.day_tables import MOST_KEEP_DAYS
from outbox.errors import WrongSettingsError

ID_LENGTH = 32
NAME_LENGTH = 64

KafkaSettings = Mapping[str, str | int | float | bool]
ConfType = TypeVar("ConfType", bound="CommonConf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonConf:
    """The settings that outbox and inbox share. The key of a field is its name in capitals.

    Attributes:
        kafka: The settings of librdkafka.
        keep_days: How many days, at least, the outbox keeps sent versions and the inbox keeps the
            identities of processed messages.
        retry_first_seconds: The pause after the first failure.
        retry_most_seconds: The longest pause after failures.
    """

    NAME: ClassVar[str]

    kafka: KafkaSettings = field(default_factory=dict)
    keep_days: int = 7
    retry_first_seconds: float = 1.0
    retry_most_seconds: float = 300.0

    def __post_init__(self) -> None:
        self._require(
            isinstance(self.kafka, Mapping), "KAFKA must map names of librdkafka to values"
        )
        days = f"KEEP_DAYS must be a whole number from 1 to {MOST_KEEP_DAYS}"
        self._require(
            isinstance(self.keep_days, int) and 1 <= self.keep_days <= MOST_KEEP_DAYS, days
        )
        self._require_at_least("retry_first_seconds", 0.01)
        self._require_at_least("retry_most_seconds", self.retry_first_seconds)

    @classmethod
    def from_setting(cls: type[ConfType], setting: object) -> ConfType:
        """Make the settings from the dictionary in settings.py.

        Raises:
            WrongSettingsError: A key is unknown or missing, or a value is wrong.
        """
        if not isinstance(setting, Mapping):
            raise WrongSettingsError(f"settings.{cls.NAME} must be a dictionary")
        conf_fields = {conf_field.name.upper(): conf_field for conf_field in fields(cls)}
        unknown = [str(name) for name in setting if name not in conf_fields]
        cls._require(
            not unknown, f"unknown: {', '.join(unknown)}; known are {', '.join(conf_fields)}"
        )
        missing = [
            name
            for name, conf_field in conf_fields.items()
            if conf_field.default is MISSING
            and conf_field.default_factory is MISSING
            and name not in setting
        ]
        cls._require(not missing, f"missing: {', '.join(missing)}")
        return cls(**{conf_fields[name].name: value for name, value in setting.items()})

    @classmethod
    def _require(cls, is_valid: bool, requirement: str) -> None:
        """Require that a setting is valid.

        Raises:
            WrongSettingsError: The setting is not valid. The message states the requirement.
        """
        if not is_valid:
            raise WrongSettingsError(f"settings.{cls.NAME}: {requirement}")

    def _require_at_least(self, name: str, minimum: float) -> None:
        """Require that a setting is a number of at least `minimum`."""
        value = getattr(self, name)
        is_valid = isinstance(value, int | float) and value >= minimum
        self._require(is_valid, f"{name.upper()} must be {minimum:g} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConf(CommonConf):
    """The settings in settings.OUTBOX.

    Attributes:
        client_id: The name of the service. Its messages have it as `clientId`.
        topics: The topic for each kind of document.
        send_unchanged: Whether to record a version even if the document did not change.
        lease_seconds: After how many seconds without a sign of life a relay loses its buckets, its
            share of the documents.
    """

    NAME = "OUTBOX"

    client_id: str
    topics: Mapping[str, str]
    send_unchanged: bool = False
    lease_seconds: float = 5.0

    def __post_init__(self) -> None:
        CommonConf.__post_init__(self)
        self._require(
            isinstance(self.client_id, str) and 0 < len(self.client_id) <= NAME_LENGTH,
            f"CLIENT_ID must be a text of 1 to {NAME_LENGTH} characters",
        )
        self._require(
            isinstance(self.topics, Mapping) and all("/" not in entity for entity in self.topics),
            "TOPICS must map each entity to the name of its topic; an entity has no slash",
        )
        self._require_at_least("lease_seconds", 1)


def make_conf_loader(conf_class: type[ConfType]) -> Callable[[], ConfType]:
    """Return a function that loads the settings once, and again after a test changes them.

    The returned function raises WrongSettingsError if the settings are wrong.
    """

    @lru_cache(maxsize=1)
    def load_conf() -> ConfType:
        return conf_class.from_setting(getattr(settings, conf_class.NAME, {}))

    def clear_cache(*, setting: str, **_: object) -> None:
        if setting == conf_class.NAME:
            load_conf.cache_clear()

    setting_changed.connect(clear_cache, weak=False, dispatch_uid=f"outbox.{conf_class.NAME}")
    return load_conf


def check_conf(load: Callable[[], CommonConf], app: str) -> list[CheckMessage]:
    """Return the system check's message if the settings are wrong, otherwise an empty list."""
    try:
        load()
    except WrongSettingsError as error:
        return [Error(str(error), hint=f"See docs/{app}.md.", id=f"{app}.E001")]
    return []


conf = make_conf_loader(OutboxConf)
_RANDOM = SystemRandom()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds that double after each failure, up to `longest`.

    Half of each pause is random.
    """

    first: float
    longest: float

    def choose_pause(self, attempts: int) -> float:
        """Return the pause in seconds after `attempts` failures in a row (one or more)."""
        # 2 to the 60th is longer than any limit, and does not overflow.
        pause = min(self.longest, self.first * 2.0 ** min(attempts - 1, 60))
        return pause * _RANDOM.uniform(0.5, 1)
