"""The settings of librdkafka: from a properties file and from ANNALS_KAFKA_* variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from annals import env
from history.failure.complaints import FileError, read_text

# librdkafka settings that belong to the consumer, each with what another value would break.
OURS = {
    "isolation.level": "Annals reads committed messages only; aborted ones are not versions",
    "partition.assignment.strategy": "the consumer's hand-over needs the eager strategies; "
    "an incremental one would let two consumers read a partition",
    "group.id": "use ANNALS_CONSUMER_GROUP",
    "enable.auto.commit": "offsets are committed after their rows",
    "enable.auto.offset.store": "offsets are committed after their rows",
    "auto.offset.reset": "the ledger says where reading goes on",
}


def given(environ: Mapping[str, str], file: Path | None = None) -> dict[str, str]:
    """librdkafka settings from the properties file, overridden by ANNALS_KAFKA_* variables:
    ANNALS_KAFKA_SASL_MECHANISM is sasl.mechanism. Raises env.SettingError."""
    found = _properties(file) | {
        name.removeprefix(env.KAFKA_PREFIX).lower().replace("_", "."): value
        for name, value in environ.items()
        if name.startswith(env.KAFKA_PREFIX) and value
    }
    for name, why in OURS.items():
        if name in found:
            raise env.SettingError(
                f"{name} cannot be set for Kafka ({env.KAFKA_PREFIX}"
                f"{name.upper().replace('.', '_')} or ANNALS_LIBRDKAFKA_FILE): {why}."
            )
    return found


def _properties(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        lines = read_text(file).splitlines()
    except FileError as error:
        raise env.SettingError(f"ANNALS_LIBRDKAFKA_FILE is wrong: {error}.") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise env.SettingError(
                f"ANNALS_LIBRDKAFKA_FILE is wrong: line {number} of {file} is not name=value."
            )
        found[name.strip()] = value.strip()
    return found
