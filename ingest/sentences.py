"""Sentences that are stored in English, in the language of the reader."""

import re
from collections.abc import Iterable
from functools import cache

from django.utils.translation import gettext


def translated(text: str, templates: Iterable[str]) -> str:
    """The text with each part translated that one of the templates is, the first that fits; parts
    are separated by "; ". {names} in a template stand for what differs, which may be translated as
    well."""
    return "; ".join(_part(each, templates) for each in text.split("; "))


def _part(text: str, templates: Iterable[str]) -> str:
    for template in templates:
        if found := _pattern(template).fullmatch(text):
            values = {name: _part(each, templates) for name, each in found.groupdict().items()}
            return gettext(template).format(**values)
    return text


@cache
def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(template)))
