"""Why a message was not stored, in the language of the page, as HTML."""

import re
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from ingest.messages.translation import translate_stored


def translate_detail(detail: str, explanation: Any) -> SafeString:
    """Write a detail of the quarantine as HTML; what stands between `` becomes code.

    Args:
        detail: The sentence in English.
        explanation: From what it was written, as it is stored; None in rows of 0.1.0.
    """
    text = escape(translate_stored(detail, explanation))
    return mark_safe(re.sub("`([^`]*)`", r"<code>\1</code>", text))  # noqa: S308 - escaped above
