"""Translates explanations, such as why a message is bad, into the language of an admin page."""

from collections.abc import Iterable
from typing import Any

from django.utils.translation import gettext

from ingest.messages.explanations import Explanation


def translate_stored(text: str, stored: Any) -> str:
    """Translate a stored sentence into the language of the page.

    The translation is made from the explanation (a code and parameters) that is stored with the
    sentence. Without an explanation, the sentence stays in English. It also stays in English if the
    explanation belongs to a different sentence: a process of an earlier release replaces the
    sentence, but not the explanation.

    Args:
        text: The sentence in English.
        stored: The explanation as `Explanation.to_json` returned it, or None.
    """
    explanation = Explanation.from_json(stored)
    if explanation is None:
        return text
    try:
        is_same = explanation.english == text
    except (KeyError, ValueError):  # another release stored other parameters
        return text
    return explanation.write(gettext) if is_same else text


def translate_all(explanations: Iterable[Explanation]) -> str:
    """Return the sentences in the language of the page, as one text."""
    return "; ".join(explanation.write(gettext) for explanation in explanations)
