"""Renders values and rows of changes as HTML, in Python because templates would be too slow."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    from history.admin.components.change_rows import ChangeRow
    from history.admin.components.values import ShownValue


def render_value(value: ShownValue) -> SafeString:
    """Return a value, with all values inside it, as HTML."""
    return mark_safe(_render_value(value))  # noqa: S308 - every text in it is escaped


def render_row(row: ChangeRow) -> SafeString:
    """Return a change as a row of a table: field, old value, new value."""
    path, name = escape(row.path), escape(row.label)
    if row.filter_url:
        title = f"{path} · {_get_titles(get_language()).filter}"
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
        f'<td class="old">{_render_value(row.old)}</td>\n'
        f'<td class="new">{_render_value(row.new)}</td>\n</tr>'
    )


class _Titles(NamedTuple):
    """The texts of HTML attributes `title` in one language, escaped."""

    absent: str
    masked: str
    filter: str


@cache
def _get_titles(_language: str | None) -> _Titles:
    return _Titles(
        absent=escape(_("not there")),
        masked=escape(_("masked; within one field of a document, equal codes mean equal values")),
        filter=escape(_("all values of this field")),
    )


def _render_value(value: ShownValue) -> str:
    form, text = (
        value.form,
        escape(value.text[: value.visible_letters] if value.visible_letters else value.text),
    )
    if form == "absent":
        return f'<span class="absent" title="{_get_titles(get_language()).absent}">—</span>'
    if form == "null":
        return f'<em class="null" title="{escape(value.exact)}">{text}</em>'
    if form == "masked":
        name, link = ("a", f' href="{escape(value.url)}"') if value.url else ("span", "")
        title = _get_titles(get_language()).masked
        return f'<{name} class="masked"{link} title="{title}">{text}</{name}>'
    if form == "moment":
        moment, exact = escape(value.moment), escape(value.exact)
        text = escape(value.local)
        return f'<time datetime="{moment}" data-when="full" data-utc="{exact}">{text}</time>'
    if form in ("list", "object"):
        return _render_nested(value, text)
    if form == "long":
        summary = _render_marked(value.around) if value.marked else escape(value.head)
        return (
            f'<details class="longtext"><summary>{summary}</summary>'
            f'<p class="prewrap">{text}</p>{_render_rest(value)}</details>'
        )
    if value.marked:
        return f"<span>{_render_marked(value.marked)}</span>"
    title = f' title="{escape(value.exact)}"' if value.exact else ""
    return f'<span class="{form}"{title}>{text}</span>'


def _render_rest(value: ShownValue) -> str:
    """Return a line that says how many letters of a long text are left out, or ""."""
    hidden = len(value.text) - value.visible_letters
    if hidden <= 0:
        return ""
    text = ngettext(
        "{n} more character in the snapshot", "{n} more characters in the snapshot", hidden
    )
    return f'<p class="quiet">… {escape(text.format(n=hidden))}</p>'


def _render_marked(parts: tuple[str, ...]) -> str:
    return "".join(
        f"<mark>{escape(part)}</mark>" if index % 2 and part else escape(part)
        for index, part in enumerate(parts)
    )


def _render_nested(value: ShownValue, text: str) -> str:
    items = "".join(
        f"<div><dt>{escape(item.name)}</dt><dd>{_render_value(item.value)}</dd></div>"
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


def colour_json(text: str) -> SafeString:
    """Return indented JSON text as HTML, with a span and a CSS class for each key and value."""
    return mark_safe(_TOKEN.sub(_render_token, escape(text, quote=False)))  # noqa: S308 - as above


def _render_token(token: re.Match[str]) -> str:
    if (text := token["text"]) is not None:
        kind = "key" if token["colon"] else "str"
        return f'<span class="{kind}">{text}</span>{token["colon"] or ""}'
    return f'<span class="{"num" if token["number"] is not None else "lit"}">{token[0]}</span>'
