"""Sentences that are stored in English, in the language of the reader."""

import re
from collections.abc import Iterable
from functools import cache

from django.utils.translation import gettext


def translate_sentences(text: str, templates: Iterable[str]) -> str:
    """Translate the parts of a text that fit a template; parts are separated by "; ".

    The first template that fits counts. {names} in a template stand for what differs; that may be
    translated as well.
    """
    return "; ".join(_translate_part(part, templates) for part in text.split("; "))


def _translate_part(text: str, templates: Iterable[str]) -> str:
    for template in templates:
        if match := _compile_template(template).fullmatch(text):
            values = {
                name: _translate_part(value, templates) for name, value in match.groupdict().items()
            }
            return gettext(template).format(**values)
    return text


@cache
def _compile_template(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(template)))
