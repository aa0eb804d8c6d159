"""Generates the tables of docs/contract.md."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from history.documents.jsonb import MAX_AFTER_POINT, MAX_BEFORE_POINT, MAX_DIGITS
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
)
from history.kinds.entities import ENTITIES
from ingest.messages.decode import MAX_NESTING
from ingest.messages.explanations import RULES
from ingest.messages.rejection import Reason
from scripts import message_schema as contract

NO_VALUE: Final = ""
_REPEAT: Final = re.compile(rb"TIMES\((.+?), (\d+)\)")


@dataclass(frozen=True, slots=True)
class ReasonExample:
    """A reason of quarantine, explained with an example.

    Attributes:
        when: When a message gets this reason, as a sentence.
        remedy: What the service has to do, as a sentence.
        example: The value of a message that gets this reason; None if its value is not the cause.
        before: A message that must be stored before, or None.
        by_database: Whether PostgreSQL finds the fault, and not the decoder.
    """

    when: str
    remedy: str
    example: str | None
    before: str | None = None
    by_database: bool = False


def make_good_message(**changes: str) -> str:
    """Return a good message of a child.

    Args:
        changes: The JSON text of each field that differs; '' to leave the field out.
    """
    texts = {
        "id": '"T1"',
        "version": "1",
        "type": '"CREATE"',
        "updatedAt": '"2026-11-22T10:00:00Z"',
        "clientId": '"tasks"',
        "productInstanceId": '"A1"',
        "data": '{"done":false}',
        **changes,
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in texts.items() if text) + "}"


def expand_example(example: str) -> bytes:
    """Return the bytes of an example. `TIMES(text, 3)` in it stands for the text three times."""
    return _REPEAT.sub(lambda match: match[1] * int(match[2]), example.encode())


BREACHES: Final = {
    Reason.EMPTY: ReasonExample(
        "The message has no value, as a tombstone of a compacted topic.",
        "Send a deletion as a message whose `type` is `DELETE`.",
        NO_VALUE,
    ),
    Reason.NOT_JSON: ReasonExample(
        "The value is no JSON in UTF-8: cut off, UTF-16, a byte order mark, NaN, half of a "
        "surrogate pair, the prefix of a schema registry.",
        "Send the JSON text alone, in UTF-8.",
        make_good_message(data='{"rate":NaN}'),
    ),
    Reason.BAD_FIELD: ReasonExample(
        f"A required field is missing, or a field has another JSON type or length: `id` and "
        f"`productInstanceId` have up to {ID_LENGTH} characters, `clientId` up to "
        f"{CLIENT_ID_LENGTH}, `author` up to {AUTHOR_LENGTH}; `version` is a whole number from 0 "
        f"to {MAX_VERSION}.",
        "Correct the field; the detail names it.",
        make_good_message(version='"1"'),
    ),
    Reason.BAD_TYPE: ReasonExample(
        "`type`, or `revType` where there is no `type`, is missing or none of `CREATE`, `UPDATE`, "
        "`DELETE`, 0, 1, 2.",
        "Send one of these, in capitals.",
        make_good_message(type='"UPSERT"'),
    ),
    Reason.BAD_TIME: ReasonExample(
        "`updatedAt` is not written as [a time](#time) must be, or does not exist, as 30 February.",
        "Send ISO 8601 with `T`, at most nine digits of a second, and `Z` or an offset.",
        make_good_message(updatedAt='"22.11.2026 10:00"'),
    ),
    Reason.BAD_DATA: ReasonExample(
        "`data` is missing, or no object; or null although `type` is not `DELETE`.",
        "Send the whole snapshot as an object.",
        make_good_message(data='"{}"'),
    ),
    Reason.NO_APPLICATION: ReasonExample(
        "A child does not name its application: `productInstanceId` is missing, null or empty.",
        "Send the application's id in each version of the child, also in a deletion.",
        make_good_message(productInstanceId=""),
    ),
    Reason.TOO_DEEP: ReasonExample(
        f"Objects and lists are nested deeper than {MAX_NESTING} levels.",
        "Make the snapshot flatter.",
        make_good_message(data=f'{{"a":TIMES([, {MAX_NESTING})TIMES(], {MAX_NESTING})}}'),
    ),
    Reason.TOO_LARGE: ReasonExample(
        f"The numbers of the snapshot have exponents that stand for more than {MAX_DIGITS:,} "
        "digits.",
        "Send such numbers as texts.",
        make_good_message(data='{"a":[TIMES(1e131071,, 9000)0]}'),
    ),
    Reason.FUTURE: ReasonExample(
        "`updatedAt` is after the last day that is accepted (`ANNALS_AHEAD_DAYS` after today).",
        "Set the clock of the service, or send the offset that belongs to the time. A retry "
        "accepts the message once its day is near.",
        make_good_message(updatedAt='"9999-12-31T23:59:59Z"'),
    ),
    Reason.UNKNOWN_TOPIC: ReasonExample(
        "No kind of entity is declared for the topic. The consumer subscribes to declared topics "
        "only; this remains of a kind whose declaration was removed.",
        "Declare the kind again, or discard the messages.",
        None,
    ),
    Reason.BAD_TEXT: ReasonExample(
        "`id`, `clientId`, `author` or `productInstanceId` has a NUL character, or a text in "
        "`data` has bytes that are not UTF-8. NUL in `data` is stored.",
        "Remove the character.",
        make_good_message(id='"T\\u00001"'),
    ),
    Reason.BAD_NUMBER: ReasonExample(
        f"A number in `data` has more than {MAX_BEFORE_POINT:,} digits before its point or "
        f"{MAX_AFTER_POINT:,} after it.",
        "Send such a number as a text.",
        make_good_message(data='{"amount":1e400000}'),
        by_database=True,
    ),
    Reason.NOT_STORABLE: ReasonExample(
        "PostgreSQL refuses the row for another reason: a constraint or trigger that your "
        "installation has.",
        "Ask the operators of the database; the detail has PostgreSQL's code.",
        None,
        by_database=True,
    ),
    Reason.DIVERGENT: ReasonExample(
        "A version with the same `id`, `updatedAt` and `version` is stored, and differs in another "
        "field.",
        "Give a changed document a new `version`. The stored one stays.",
        make_good_message(data='{"done":true}'),
        before=make_good_message(),
        by_database=True,
    ),
    Reason.NO_PARTITION: ReasonExample(
        "The day of `updatedAt` is accepted but has no partition, and the consumer may not make "
        "one.",
        "Nothing at the service: a retry stores the message when `partitions maintain` has run.",
        None,
        by_database=True,
    ),
}


# The fields that the common rules do not require, with the cases in which they are required.
_NEEDED: Final[Mapping[str, str]] = {
    "type": "yes, or `revType`",
    "revType": "only without `type`",
    "author": "no",
    contract.APPLICATION: "for children",
}


def make_parts() -> dict[str, str]:
    """Return the Markdown of each part of the page, by the name of the part."""
    return {
        "topics": _format_table(
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
        "fields": _format_table(
            ["field", "needed", "value"],
            ([f"`{name}`", _NEEDED.get(name, "yes"), rule] for name, rule in RULES.items()),
        ),
        "beyond": "".join(
            f"- {text[0].upper()}{text[1:]}.\n" for text in contract.BEYOND_SCHEMA.values()
        ),
        "reasons": _format_table(
            ["reason", "when", "what to do"],
            ([f"`{reason}`", BREACHES[reason].when, BREACHES[reason].remedy] for reason in Reason),
        ),
        "examples": _format_table(
            ["reason", "message"],
            ([f"`{reason}`", _format_example(BREACHES[reason])] for reason in Reason),
        ),
    }


def _format_example(breach: ReasonExample) -> str:
    if breach.example is None:
        return "not a matter of the message"
    if breach.example == NO_VALUE:
        return "no value"
    first = f"`{breach.before}`, and then " if breach.before else ""
    return f"{first}`{breach.example}`"


def _format_table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
