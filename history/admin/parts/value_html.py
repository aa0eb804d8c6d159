"""Values and rows of changes as HTML. Written here and not in templates."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from history.admin.parts.change_rows import ChangeRow
    from history.admin.parts.values import Value


def value_html(value: Value) -> SafeString:
    """One value, with what is inside it."""
    return mark_safe(_value(value))  # noqa: S308 - every text in it is escaped


def row_html(row: ChangeRow) -> SafeString:
    """A change as a row of a table: field, old value, new value."""
    path, name = escape(row.path), escape(row.label)
    if row.filter_url:
        title = f"{path} · {_words(get_language()).filter}"
        name = f'<a href="{escape(row.filter_url)}" title="{title}">{name}</a>'
    else:
        name = f'<span title="{path}">{name}</span>'
    if row.trail:
        trail = "".join(f"{escape(step)} › " for step in row.trail)
        name = f'<span class="trail">{trail}</span>{name}'
    if row.note:
        name += f' <span class="note">{escape(row.note)}</span>'
    return mark_safe(  # noqa: S308 - as above
        f'<tr class="{row.kind}">\n<th scope="row">{name}</th>\n'
        f'<td class="old">{_value(row.old)}</td>\n<td class="new">{_value(row.new)}</td>\n</tr>'
    )


class _Words(NamedTuple):
    """Titles in one language, escaped."""

    absent: str
    masked: str
    filter: str


@cache
def _words(_language: str | None) -> _Words:
    return _Words(
        absent=escape(_("not there")),
        masked=escape(_("masked; within one field of a document, equal codes mean equal values")),
        filter=escape(_("all values of this field")),
    )


def _value(value: Value) -> str:
    form, text = value.form, escape(value.text[: value.most] if value.most else value.text)
    if form == "absent":
        return f'<span class="absent" title="{_words(get_language()).absent}">—</span>'
    if form == "null":
        return f'<em class="null" title="{escape(value.exact)}">{text}</em>'
    if form == "masked":
        name, link = ("a", f' href="{escape(value.url)}"') if value.url else ("span", "")
        title = _words(get_language()).masked
        return f'<{name} class="masked"{link} title="{title}">{text}</{name}>'
    if form == "moment":
        moment, exact = escape(value.moment), escape(value.exact)
        text = escape(value.local)
        return f'<time datetime="{moment}" data-when="full" data-utc="{exact}">{text}</time>'
    if form in ("list", "object"):
        return _nested(value, text)
    if form == "long":
        shown = _marked(value.around) if value.marked else escape(value.head)
        return (
            f'<details class="longtext"><summary>{shown}</summary>'
            f'<p class="prewrap">{text}</p>{_rest(value)}</details>'
        )
    if value.marked:
        return f"<span>{_marked(value.marked)}</span>"
    title = f' title="{escape(value.exact)}"' if value.exact else ""
    return f'<span class="{form}"{title}>{text}</span>'


def _rest(value: Value) -> str:
    """That a long text goes on."""
    left = len(value.text) - value.most
    if left <= 0:
        return ""
    text = ngettext(
        "{n} more character in the snapshot", "{n} more characters in the snapshot", left
    )
    return f'<p class="quiet">… {escape(text.format(n=left))}</p>'


def _marked(parts: tuple[str, ...]) -> str:
    return "".join(
        f"<mark>{escape(part)}</mark>" if place % 2 and part else escape(part)
        for place, part in enumerate(parts)
    )


def _nested(value: Value, text: str) -> str:
    items = "".join(
        f"<div><dt>{escape(item.name)}</dt><dd>{_value(item.value)}</dd></div>"
        for item in value.items
    )
    if value.hidden:
        more = ngettext(
            "%(n)s more in the snapshot", "%(n)s more in the snapshot", value.hidden
        ) % {"n": value.hidden}
        items += f'<div><dt>…</dt><dd class="quiet">{escape(more)}</dd></div>'
    opened = "" if value.folded else " open"
    return f'<details class="nested"{opened}><summary>{text}</summary>\n<dl>{items}</dl></details>'


_TOKEN = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")(?P<colon>:)?'
    r"|(?P<number>-?\d[\d.eE+-]*)|(?P<literal>true|false|null)"
)


def coloured(text: str) -> SafeString:
    """Indented JSON text as HTML, its keys and values in spans of their own class."""
    return mark_safe(_TOKEN.sub(_span, escape(text, quote=False)))  # noqa: S308 - as above


def _span(token: re.Match[str]) -> str:
    if (shown := token["text"]) is not None:
        kind = "key" if token["colon"] else "str"
        return f'<span class="{kind}">{shown}</span>{token["colon"] or ""}'
    return f'<span class="{"num" if token["number"] is not None else "lit"}">{token[0]}</span>'
