"""The generated parts of docs/contract.md."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from history.documents.jsonb import MOST_AFTER_POINT, MOST_BEFORE_POINT, MOST_DIGITS
from history.entities import ENTITIES
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from ingest.source.decode import MAX_NESTING, Reason
from ingest.source.envelope import RULES
from scripts import message_schema as contract

NO_VALUE: Final = ""
_REPEAT: Final = re.compile(rb"TIMES\((.+?), (\d+)\)")


@dataclass(frozen=True, slots=True)
class Breach:
    """One reason. example: the value of a message of a child; None where the reason is not in the
    message. before: the message that must be stored already. by_database: PostgreSQL finds it."""

    when: str
    remedy: str
    example: str | None
    before: str | None = None
    by_database: bool = False


def good(**changes: str) -> str:
    """A good message of a child. changes: the JSON text of fields that differ; without it, the
    field is left out."""
    found = {
        "id": '"T1"',
        "version": "1",
        "type": '"CREATE"',
        "updatedAt": '"2026-11-22T10:00:00Z"',
        "clientId": '"tasks"',
        "productInstanceId": '"A1"',
        "data": '{"done":false}',
        **changes,
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in found.items() if text) + "}"


def value(example: str) -> bytes:
    """The bytes of an example, with what repeats written out."""
    return _REPEAT.sub(lambda found: found[1] * int(found[2]), example.encode())


BREACHES: Final = {
    Reason.EMPTY: Breach(
        "The message has no value, as a tombstone of a compacted topic.",
        "Send a deletion as a message whose `type` is `DELETE`.",
        NO_VALUE,
    ),
    Reason.NOT_JSON: Breach(
        "The value is no JSON in UTF-8: cut off, UTF-16, a byte order mark, NaN, half of a "
        "surrogate pair, the prefix of a schema registry.",
        "Send the JSON text alone, in UTF-8.",
        good(data='{"rate":NaN}'),
    ),
    Reason.BAD_FIELD: Breach(
        f"A required field is missing, or a field has another JSON type or length: `id` and "
        f"`productInstanceId` have up to {ID_LENGTH} characters, `clientId` up to "
        f"{CLIENT_ID_LENGTH}, `author` up to {AUTHOR_LENGTH}; `version` is a whole number from 0 "
        f"to {MAX_VERSION}.",
        "Correct the field; the detail names it.",
        good(version='"1"'),
    ),
    Reason.BAD_TYPE: Breach(
        "`type`, or `revType` where there is no `type`, is missing or none of `CREATE`, `UPDATE`, "
        "`DELETE`, 0, 1, 2.",
        "Send one of these, in capitals.",
        good(type='"UPSERT"'),
    ),
    Reason.BAD_TIME: Breach(
        "`updatedAt` is not written as [a time](#time) must be, or does not exist, as 30 February.",
        "Send ISO 8601 with `T`, at most nine digits of a second, and `Z` or an offset.",
        good(updatedAt='"22.11.2026 10:00"'),
    ),
    Reason.BAD_DATA: Breach(
        "`data` is missing, or no object; or null although `type` is not `DELETE`.",
        "Send the whole snapshot as an object.",
        good(data='"{}"'),
    ),
    Reason.NO_APPLICATION: Breach(
        "A child does not name its application: `productInstanceId` is missing, null or empty.",
        "Send the application's id in each version of the child, also in a deletion.",
        good(productInstanceId=""),
    ),
    Reason.TOO_DEEP: Breach(
        f"Objects and lists are nested deeper than {MAX_NESTING} levels.",
        "Make the snapshot flatter.",
        good(data=f'{{"a":TIMES([, {MAX_NESTING})TIMES(], {MAX_NESTING})}}'),
    ),
    Reason.TOO_LARGE: Breach(
        f"The numbers of the snapshot have exponents that stand for more than {MOST_DIGITS:,} "
        "digits.",
        "Send such numbers as texts.",
        good(data='{"a":[TIMES(1e131071,, 9000)0]}'),
    ),
    Reason.FUTURE: Breach(
        "`updatedAt` is after the last day that is accepted (`ANNALS_AHEAD_DAYS` after today).",
        "Set the clock of the service, or send the offset that belongs to the time. A retry "
        "accepts the message once its day is near.",
        good(updatedAt='"9999-12-31T23:59:59Z"'),
    ),
    Reason.UNKNOWN_TOPIC: Breach(
        "No kind of entity is declared for the topic. The consumer subscribes to declared topics "
        "only; this remains of a kind whose declaration was removed.",
        "Declare the kind again, or discard the messages.",
        None,
    ),
    Reason.BAD_TEXT: Breach(
        "`id`, `clientId`, `author` or `productInstanceId` has a NUL character, or a text in "
        "`data` has bytes that are not UTF-8. NUL in `data` is stored.",
        "Remove the character.",
        good(id='"T\\u00001"'),
    ),
    Reason.BAD_NUMBER: Breach(
        f"A number in `data` has more than {MOST_BEFORE_POINT:,} digits before its point or "
        f"{MOST_AFTER_POINT:,} after it.",
        "Send such a number as a text.",
        good(data='{"amount":1e400000}'),
        by_database=True,
    ),
    Reason.NOT_STORABLE: Breach(
        "PostgreSQL refuses the row for another reason: a constraint or trigger that your "
        "installation has.",
        "Ask the operators of the database; the detail has PostgreSQL's code.",
        None,
        by_database=True,
    ),
    Reason.DIVERGENT: Breach(
        "A version with the same `id`, `updatedAt` and `version` is stored, and differs in another "
        "field.",
        "Give a changed document a new `version`. The stored one stays.",
        good(data='{"done":true}'),
        before=good(),
        by_database=True,
    ),
    Reason.NO_PARTITION: Breach(
        "The day of `updatedAt` is accepted but has no partition, and the consumer may not make "
        "one.",
        "Nothing at the service: a retry stores the message when `partitions maintain` has run.",
        None,
        by_database=True,
    ),
}


# When a field is needed that the common rules do not require.
_NEEDED: Final[Mapping[str, str]] = {
    "type": "yes, or `revType`",
    "revType": "only without `type`",
    "author": "no",
    contract.APPLICATION: "for children",
}


def parts() -> dict[str, str]:
    """The Markdown of each part by its name."""
    return {
        "topics": _table(
            ["topic", "kind", "the field that names the application"],
            (
                [
                    f"`{topic}`",
                    f"`{entity.name}`",
                    f"`{entity.parent}`" if entity.parent else "none",
                ]
                for entity in ENTITIES
                for topic in entity.topics
            ),
        ),
        "fields": _table(
            ["field", "needed", "value"],
            ([f"`{name}`", _NEEDED.get(name, "yes"), rule] for name, rule in RULES.items()),
        ),
        "beyond": "".join(f"- {text[0].upper()}{text[1:]}.\n" for text in contract.BEYOND.values()),
        "reasons": _table(
            ["reason", "when", "what to do"],
            ([f"`{reason}`", BREACHES[reason].when, BREACHES[reason].remedy] for reason in Reason),
        ),
        "examples": _table(
            ["reason", "message"],
            ([f"`{reason}`", _example(BREACHES[reason])] for reason in Reason),
        ),
    }


def _example(breach: Breach) -> str:
    if breach.example is None:
        return "not a matter of the message"
    if breach.example == NO_VALUE:
        return "no value"
    first = f"`{breach.before}`, and then " if breach.before else ""
    return f"{first}`{breach.example}`"


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
