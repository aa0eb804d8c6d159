"""Writes as HTML why a message was not stored, in the language of the page."""

import re
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from ingest.messages.translation import translate_stored


def translate_detail(detail: str, explanation: Any) -> SafeString:
    """Return the detail of a quarantined message as HTML, with <code> in place of backticks.

    Args:
        detail: The sentence in English.
        explanation: The stored explanation from which the sentence was written; None in rows of
            release 0.1.0.
    """
    text = escape(translate_stored(detail, explanation))
    return mark_safe(re.sub("`([^`]*)`", r"<code>\1</code>", text))  # noqa: S308 - escaped above
