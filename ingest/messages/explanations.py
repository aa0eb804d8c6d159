"""Explains why a message was not stored, or why a day must be kept.

An `Explanation` is a code with parameters, and is stored. The sentence is made where it is shown:
in English for logs and commands, in the language of the page by ingest.messages.translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from history.documents.jsonb import MAX_AFTER_POINT, MAX_BEFORE_POINT
from history.documents.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION

Parameter: TypeAlias = str | int
Translate: TypeAlias = Callable[[str], str]


def _(text: str) -> str:
    """Mark a text for the catalogue of translations, as Django's gettext_noop does."""
    return text


# The quarantine groups messages by the wrong field. A longer name than this counts as no field.
LONGEST_FIELD: Final = 200
# Characters that PostgreSQL cannot store in a text.
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class Code(StrEnum):
    """The meaning of an explanation. The values are stored, so a new meaning needs a new value."""

    # The message cannot be read.
    NO_VALUE = "no_value"
    TOO_DEEP = "too_deep"
    MALFORMED = "malformed"
    TRUNCATED = "truncated"
    NOT_UTF8 = "not_utf8"
    LONE_SURROGATE = "lone_surrogate"
    # A field breaks its rule.
    UNCLEAR_FIELD = "unclear_field"
    WRONG_FIELD = "wrong_field"
    NUL_CHARACTER = "nul_character"
    NOT_A_TIME = "not_a_time"
    NO_SUCH_TIME = "no_such_time"
    AFTER_LAST_DAY = "after_last_day"
    NO_TYPE = "no_type"
    NO_APPLICATION = "no_application"
    NO_DATA = "no_data"
    TOO_MANY_DIGITS = "too_many_digits"
    UNDECLARED_TOPIC = "undeclared_topic"
    # An envelope that a kind declares is not as declared.
    UNKNOWN_CHANGE_TYPE = "unknown_change_type"
    TIME_NOT_A_NUMBER = "time_not_a_number"
    TIME_OUT_OF_RANGE = "time_out_of_range"
    OTHER_SPECVERSION = "other_specversion"
    BASE64_DATA = "base64_data"
    DATA_NOT_AN_OBJECT = "data_not_an_object"
    NO_ROW = "no_row"
    NO_ROW_BEFORE = "no_row_before"
    ROW_LACKS_VALUE = "row_lacks_value"
    ROW_IS_ONLY_KEY = "row_is_only_key"
    DELETION_OUT_OF_RANGE = "deletion_out_of_range"
    DELETION_WITHOUT_SOURCE = "deletion_without_source"
    # PostgreSQL cannot store the version.
    DATA_NOT_UTF8 = "data_not_utf8"
    DATA_LONE_SURROGATE = "data_lone_surrogate"
    NUMBER_TOO_LONG = "number_too_long"
    CONSTRAINT = "constraint"
    ROW_REFUSED = "row_refused"
    DIVERGENT = "divergent"
    DAY_NOT_CREATED = "day_not_created"
    DAY_HAS_OTHER_BOUNDS = "day_has_other_bounds"
    # Reading of a topic partition was halted.
    BAD_IN_A_ROW = "bad_in_a_row"
    BAD_AMONG_LAST = "bad_among_last"
    HALTED_BEFORE = "halted_before"
    # A day must be kept.
    UNRESOLVED = "unresolved"
    NEVER_READ = "never_read"
    END_UNKNOWN = "end_unknown"
    END_NOT_SEEN = "end_not_seen"
    TOPIC_NOT_ASKED_FOR = "topic_not_asked_for"
    SUMS_WRONG = "sums_wrong"
    UNREAD = "unread"
    UNREAD_ONE = "unread_one"


class Explanation:
    """The reason why a message is bad, a topic partition is halted, or a day is held.

    The sentence for people is made from a code and parameters.

    Args:
        code: The reason without details. It selects the template of the sentence.
        parameters: Texts and numbers for the template. They never quote a snapshot. Three names
            have the same meaning in all explanations. `field` is the contract's name of the wrong
            field. `pointer` is the JSON pointer of that field in a declared envelope. `sqlstate` is
            the code of PostgreSQL's error.
    """

    __slots__ = ("code", "parameters")

    def __init__(self, code: Code, **parameters: Parameter) -> None:
        self.code: Final = code
        self.parameters: Final[Mapping[str, Parameter]] = MappingProxyType(parameters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Explanation) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.code, *self.parameters.items()))

    def __repr__(self) -> str:
        return f"Explanation({self.to_json()})"

    @property
    def english(self) -> str:
        """The sentence in English, as it is stored and logged."""
        return self.write(_)

    @property
    def field(self) -> str:
        """The JSON pointer or the name of the wrong field, or an empty text.

        The page "Quarantine" groups messages with the same field.
        """
        field = str(self.parameters.get("pointer") or self.parameters.get("field") or "")
        return field if len(field) <= LONGEST_FIELD else ""

    def write(self, translate: Translate) -> str:
        """Return the sentence.

        Args:
            translate: Translates English templates of sentences, for example `gettext`.
        """
        return _write_sentence(self, translate)

    def name_field(self, pointers: Mapping[str, str]) -> Explanation:
        """Return this explanation with a parameter `pointer` that locates the wrong field.

        The parameter is the JSON pointer of the field in a declared envelope. It is not added if
        the contract's envelope has the field at the same pointer.

        Args:
            pointers: The JSON pointers in the declared envelope, by field of the contract.
        """
        field = self.parameters.get("field")
        pointer = pointers.get(str(field))
        if not pointer or pointer == f"/{field}":
            return self
        return Explanation(self.code, **{**self.parameters, "pointer": pointer})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that is stored. `from_json` reads it."""
        parameters = {
            name: escape_unstorable(value) if isinstance(value, str) else value
            for name, value in self.parameters.items()
        }
        return {"code": str(self.code), "parameters": parameters}

    @classmethod
    def from_json(cls, stored: Any) -> Explanation | None:
        """Return a stored explanation, or None if this release cannot read it."""
        try:
            return cls(Code(stored["code"]), **stored["parameters"])
        except (KeyError, TypeError, ValueError):
            return None


def escape_unstorable(text: str) -> str:
    """Escape the characters of a text that PostgreSQL cannot store."""
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def join_english(explanations: Iterable[Explanation]) -> str:
    """Return the sentences in English, as one text."""
    return "; ".join(explanation.english for explanation in explanations)


class Rule:
    """A requirement of the contract for a field, worded as the end of a sentence.

    Args:
        template: The words, with the placeholders {n} and {example}.
        n: The largest value or length that the contract allows.
        example: A value that the contract allows.
    """

    def __init__(self, template: str, n: int = 0, example: str = "") -> None:
        self._template = template
        self._values = {"n": n, "example": example}

    def write(self, translate: Translate) -> str:
        return translate(self._template).format(**self._values)


_TYPE_RULE: Final = Rule(_("CREATE, UPDATE or DELETE, or 0, 1 or 2"))
_FIELD_RULES: Final[Mapping[str, Rule]] = {
    "id": Rule(_("a text of 1 to {n} characters"), ID_LENGTH),
    "version": Rule(
        _("a whole number from 0 to {n}, written in digits without quotes"), MAX_VERSION
    ),
    "type": _TYPE_RULE,
    "revType": _TYPE_RULE,
    "updatedAt": Rule(
        _("a text with an ISO 8601 date and time, as {example}"),
        example="2025-07-03T11:42:48.510186Z",
    ),
    "clientId": Rule(_("a text of 1 to {n} characters"), CLIENT_ID_LENGTH),
    "author": Rule(_("a text of up to {n} characters, null or absent"), AUTHOR_LENGTH),
    "productInstanceId": Rule(_("the application's id, a text of 1 to {n} characters"), ID_LENGTH),
    "data": Rule(_("an object, or null if `type` is DELETE")),
}
# The rule of each field in English.
RULES: Final[Mapping[str, str]] = {name: rule.write(_) for name, rule in _FIELD_RULES.items()}
_APPLICATION: Final = "productInstanceId"
_MESSAGE_RULE: Final = Rule(_("a JSON object with the fields of the contract"))
_OBJECT_RULE: Final = Rule(_("an object"))
_TEXT_RULE: Final = Rule(_("a text"))


class Fault(StrEnum):
    """The reason why a field is wrong. Only explanations with the code WRONG_FIELD have one."""

    MISSING = "missing"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    TOO_SMALL = "too_small"
    TOO_LARGE = "too_large"
    # The value has this type, which the field may not have.
    INTEGER = "int"
    FRACTION = "float"
    TEXT = "str"
    BOOLEAN = "bool"
    NULL = "null"
    LIST = "array"
    OBJECT = "object"

    @classmethod
    def from_value(cls, value: object) -> Fault:
        """Return the fault that names the type of a decoded JSON value, such as INTEGER."""
        if value is None:
            return cls.NULL
        if isinstance(value, bool):
            return cls.BOOLEAN
        if isinstance(value, int):
            return cls.INTEGER
        if isinstance(value, float):
            return cls.FRACTION
        if isinstance(value, str):
            return cls.TEXT
        return cls.LIST if isinstance(value, list) else cls.OBJECT


_FAULTS: Final[Mapping[str, str]] = {
    Fault.MISSING: _("missing"),
    Fault.EMPTY: _("empty"),
    Fault.TOO_LONG: _("longer than {n} characters"),
    Fault.TOO_SMALL: _("less than {n}"),
    Fault.TOO_LARGE: _("more than {n}"),
    Fault.INTEGER: _("a whole number"),
    Fault.FRACTION: _("a number with a fraction or an exponent"),
    Fault.TEXT: _("a text"),
    Fault.BOOLEAN: _("true or false"),
    Fault.NULL: "null",
    Fault.LIST: _("a list"),
    Fault.OBJECT: _("an object"),
}
_RULE: Final = _("it must be {rule}")
_WRONG_MESSAGE: Final = _("the message is {fault}")
_MUST_BE_UTF8: Final = _("the message must be JSON in UTF-8")
_FULL_IDENTITY: Final = _("set REPLICA IDENTITY FULL on its table")
_SINCE_EPOCH: Final = _("it must be {unit} since 1970-01-01 UTC")

# The parts of each sentence; "; " stands between them.
_TEMPLATES: Final[Mapping[Code, tuple[str, ...]]] = {
    Code.NO_VALUE: (
        _("the message has no value"),
        _("a deletion is a message whose `type` is DELETE"),
    ),
    Code.TOO_DEEP: (_("the message is nested deeper than {n} levels"),),
    Code.MALFORMED: (_("the message is not JSON in UTF-8: {what} at byte {n}, counted from 0"),),
    Code.TRUNCATED: (_("the message ends before its JSON does"), _("it was cut off")),
    Code.NOT_UTF8: (_("a text has bytes that are not UTF-8"), _MUST_BE_UTF8),
    Code.LONE_SURROGATE: (
        _("a text has half of a surrogate pair, as {example}, which is no character"),
    ),
    Code.UNCLEAR_FIELD: (_("a field is missing or wrong"),),
    Code.WRONG_FIELD: (_("{field} is {fault}"), _RULE),
    Code.NUL_CHARACTER: (_("{fields} has a NUL character"), _("only `data` may")),
    Code.NOT_A_TIME: (
        _("{field} must look like {example}, then Z, an offset such as {offset}, or nothing"),
    ),
    Code.NO_SUCH_TIME: (
        _(
            "{field} is a time that does not exist: its year, month, day, hour, minute or second is"
            " out of range"
        ),
    ),
    Code.AFTER_LAST_DAY: (
        _("{field} is after {day} in UTC, the last day that is accepted"),
        _("check the clock and the offset of the service"),
    ),
    Code.NO_TYPE: (_("{field} is missing or another word"), _RULE),
    Code.NO_APPLICATION: (_("{field} is missing or empty"), _RULE),
    Code.NO_DATA: (_("{field} is missing or no object"), _RULE),
    Code.TOO_MANY_DIGITS: (
        _("the exponents of the numbers in `data` stand for {n} digits"),
        _("at most {most} can be returned"),
    ),
    Code.UNDECLARED_TOPIC: (_("no kind of entity is declared for topic {topic}"),),
    Code.UNKNOWN_CHANGE_TYPE: (
        _("the type of change is missing or another word"),
        _("valid: {words}"),
    ),
    Code.TIME_NOT_A_NUMBER: (_("the time is no whole number"), _SINCE_EPOCH),
    Code.TIME_OUT_OF_RANGE: (_("the time is out of range"), _SINCE_EPOCH),
    Code.OTHER_SPECVERSION: (_("{field} is missing or another one"), _("it must be 1.0")),
    Code.BASE64_DATA: (
        _("the data is in `data_base64`"),
        _("it must be a JSON object in `data`"),
    ),
    Code.DATA_NOT_AN_OBJECT: (_("{field} is no object"), _RULE),
    Code.NO_ROW: (_("{field} is missing or no object"), _("it has the row")),
    Code.NO_ROW_BEFORE: (
        _("{field} is missing or no object"),
        _("it has the row"),
        _FULL_IDENTITY,
    ),
    Code.ROW_LACKS_VALUE: (
        _("the row lacks a large value that did not change"),
        _FULL_IDENTITY,
    ),
    Code.ROW_IS_ONLY_KEY: (
        _("the row before the deletion has no version, only its key"),
        _FULL_IDENTITY,
    ),
    Code.DELETION_OUT_OF_RANGE: (_("the version of the deletion is out of range"),),
    Code.DELETION_WITHOUT_SOURCE: (
        _("{field} of the deletion lacks `ts_ms` or `name`: its time and origin"),
    ),
    Code.DATA_NOT_UTF8: (_("a text in `data` has bytes that are not UTF-8"), _MUST_BE_UTF8),
    Code.DATA_LONE_SURROGATE: (
        _("a text in `data` has half of a surrogate pair, which is no character"),
    ),
    Code.NUMBER_TOO_LONG: (
        _("a number in `data` has more than {n} digits before its point or more than {m} after it"),
        _("send it as a text"),
    ),
    Code.CONSTRAINT: (_("PostgreSQL refuses the row by the constraint {name}"),),
    Code.ROW_REFUSED: (_("PostgreSQL refuses the row"),),
    Code.DIVERGENT: (
        _("another content is stored for the same `id`, `updatedAt` and `version`"),
        _("a changed document needs a new `version`"),
    ),
    Code.DAY_NOT_CREATED: (_("{table} cannot be created: {error}"),),
    Code.DAY_HAS_OTHER_BOUNDS: (_("{table} cannot be created: it has other bounds than the day"),),
    Code.BAD_IN_A_ROW: (_("{n} bad messages in a row"),),
    Code.BAD_AMONG_LAST: (_("{n} of the last {all} messages are bad"),),
    Code.HALTED_BEFORE: ("halted before",),
    Code.UNRESOLVED: (_("{n} unresolved in quarantine"),),
    Code.NEVER_READ: (_("{where} was never read"),),
    Code.END_UNKNOWN: (_("the end of {where} is not known"),),
    Code.END_NOT_SEEN: (_("no consumer has seen the end of {where} since {at}"),),
    Code.TOPIC_NOT_ASKED_FOR: (_("no consumer has asked since {at} whether {where} exists"),),
    Code.SUMS_WRONG: (_("the ledger of {where} does not add up"),),
    Code.UNREAD: (_("{n:,} messages of {where} not read yet"),),
    Code.UNREAD_ONE: (_("{n} message of {where} not read yet"),),
}
# Parameters that are the same in every sentence of a code.
_CONSTANTS: Final[Mapping[Code, Mapping[str, Parameter]]] = {
    Code.LONE_SURROGATE: {"example": "\\ud800"},
    Code.NUL_CHARACTER: {"fields": "`id`, `clientId`, `author` or `productInstanceId`"},
    Code.NOT_A_TIME: {"example": "2025-07-03T11:42:48.510186035", "offset": "+03:00"},
    Code.NUMBER_TOO_LONG: {"n": MAX_BEFORE_POINT, "m": MAX_AFTER_POINT},
}
# msgspec's texts about mistakes in JSON that have a translation. Other texts stay in English.
_SYNTAX_ERRORS: Final = (
    _("object keys must be strings"),
    _("invalid character"),
    _("trailing characters"),
)


def _write_sentence(explanation: Explanation, translate: Translate) -> str:
    code, parameters = explanation.code, explanation.parameters
    values: dict[str, Parameter] = {**_CONSTANTS.get(code, {}), **parameters}
    parts = _TEMPLATES[code]
    if code is Code.MALFORMED and values["what"] in _SYNTAX_ERRORS:
        values["what"] = translate(str(values["what"]))
    if _RULE in parts:
        values["rule"] = _choose_rule(explanation).write(translate)
    if code is Code.WRONG_FIELD:
        values["fault"] = translate(_FAULTS[str(parameters["fault"])]).format(**values)
        parts = parts if explanation.field else (_WRONG_MESSAGE, _RULE)
    values["field"] = _write_place(parameters, translate)
    text = "; ".join(translate(part).format(**values) for part in parts)
    if "sqlstate" in parameters:
        text = translate(_("{text} (SQLSTATE {code})")).format(
            text=text, code=parameters["sqlstate"]
        )
    return text


def _choose_rule(explanation: Explanation) -> Rule:
    if explanation.code is Code.NO_APPLICATION:
        return _FIELD_RULES[_APPLICATION]
    field = explanation.parameters.get("field")
    if field == "op":
        return _TEXT_RULE
    if field in _FIELD_RULES:
        return _FIELD_RULES[str(field)]
    return _OBJECT_RULE if explanation.field else _MESSAGE_RULE


def _write_place(parameters: Mapping[str, Parameter], translate: Translate) -> str:
    """Return the words that name a field: its JSON pointer, its name in the contract, or both."""
    field, pointer = parameters.get("field", ""), parameters.get("pointer")
    if not pointer:
        return f"`{field}`"
    if not field:
        return f"`{pointer}`"
    return translate(_("{field}, the {name},")).format(field=f"`{pointer}`", name=field)
