"""Why a message was not stored, in the language of the page.

The sentences are those of ingest.kafka and ingest.store.
"""

import re
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_noop as _

from ingest.messages.translated_sentences import translate_sentences

# The first one that fits counts.
_DETAIL_TEMPLATES: Final = (
    _("{text} (SQLSTATE {code})"),
    _("the message has no value"),
    _("a deletion is a message whose `type` is DELETE"),
    _("the message is nested deeper than {n} levels"),
    _("the message is not JSON in UTF-8: {what} at byte {n}, counted from 0"),
    _("object keys must be strings"),
    _("invalid character"),
    _("trailing characters"),
    _("the message ends before its JSON does"),
    _("it was cut off"),
    _("a text has bytes that are not UTF-8"),
    _("a text in `data` has bytes that are not UTF-8"),
    _("the message must be JSON in UTF-8"),
    _("a text has half of a surrogate pair, as {example}, which is no character"),
    _("a text in `data` has half of a surrogate pair, which is no character"),
    _("{fields} has a NUL character"),
    _("only `data` may"),
    _("a number in `data` has more than {n} digits before its point or more than {m} after it"),
    _("send it as a text"),
    _("the exponents of the numbers in `data` stand for {n} digits"),
    _("at most {n} can be returned"),
    _("another content is stored for the same `id`, `updatedAt` and `version`"),
    _("a changed document needs a new `version`"),
    _("no kind of entity is declared for topic {topic}"),
    _("PostgreSQL refuses the row by the constraint {name}"),
    _("PostgreSQL refuses the row"),
    _("{field} must look like {example}, then Z, an offset such as {offset}, or nothing"),
    # What rows of earlier releases say.
    _("{field} is not written as {example} with Z, an offset as {offset}, or nothing after it"),
    _(
        "{field} is a time that does not exist: its year, month, day, hour, minute or second is out"
        " of range"
    ),
    _("{field} is after {day} in UTC, the last day that is accepted"),
    _("check the clock and the offset of the service"),
    _("it must be {rule}"),
    _("missing"),
    _("missing or empty"),
    _("missing or another word"),
    _("missing or no object"),
    _("no object"),
    _("empty"),
    _("longer than {n} characters"),
    _("less than {n}"),
    _("more than {n}"),
    _("a whole number from 0 to {n}, written in digits without quotes"),
    _("a whole number"),
    _("a number with a fraction or an exponent"),
    _("a text of 1 to {n} characters"),
    _("a text of up to {n} characters, null or absent"),
    _("a text with an ISO 8601 date and time, as {example}"),
    _("a text"),
    _("true or false"),
    _("a list"),
    _("something else"),
    _("CREATE, UPDATE or DELETE, or 0, 1 or 2"),
    _("the application's id, a text of 1 to {n} characters"),
    _("an object, or null if `type` is DELETE"),
    _("a JSON object with the fields of the contract"),
    _("an object"),
    _("the message {fault}"),
    _("{field} is {fault}"),
    _("{field}, the {name},"),
)


def translate_detail(detail: str) -> SafeString:
    """Translate a detail of the quarantine into HTML; what stands between `` becomes code."""
    text = escape(translate_sentences(detail, _DETAIL_TEMPLATES))
    return mark_safe(re.sub("`([^`]*)`", r"<code>\1</code>", text))  # noqa: S308 - escaped above
