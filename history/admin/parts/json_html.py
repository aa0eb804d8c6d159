"""Indented JSON in colours."""

import re
from collections.abc import Iterator

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>:)?'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<literal>true|false|null)"
)


def coloured(text: str) -> SafeString:
    """Indented JSON text as HTML, its keys and values in spans of their own class."""
    tokens = list(_TOKEN.finditer(text))
    rest = text[tokens[-1].end() :] if tokens else text
    marked = format_html_join("", '{}<span class="{}">{}</span>{}', _pieces(text, tokens))
    return format_html("{}{}", marked, rest)


def _pieces(text: str, tokens: list[re.Match[str]]) -> Iterator[tuple[str, str, str, str]]:
    """For each token: what stands before it, its class, itself, the colon after it."""
    end = 0
    for token in tokens:
        if token["text"] is not None:
            kind, shown = ("key" if token["colon"] else "str"), token["text"]
        else:
            kind, shown = ("num" if token["number"] is not None else "lit"), token[0]
        yield text[end : token.start()], kind, shown, token["colon"] or ""
        end = token.end()
