"""Search by id, in any kind of entity, or by business key: one hit opens at once."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from history import complete_to, masking, timeline
from history.admin.pages.view import may_view_history
from history.admin.parts import held, links
from history.admin.parts.cards import title
from history.admin.parts.found import Group, key_title, make_groups
from history.admin.parts.headline import CLIENT, for_titles
from history.entities import ENTITIES
from history.fallback.client import service
from history.timeline import BadParameterError, Reader, Results
from history.timeline.query import storable

MAX_QUERIES = 40
PAGE = "page"
_BETWEEN = re.compile(r"[\s,;]+")
# Letters that look the same in both alphabets.
_LATIN, _CYRILLIC = "ABEKMHOPCTYXaeopcyx", "АВЕКМНОРСТУХаеорсух"
_TO_CYRILLIC = str.maketrans(_LATIN, _CYRILLIC)
_TO_LATIN = str.maketrans(_CYRILLIC, _LATIN)
# The hyphens, dashes and the minus that text programs put in the place of a plain one.
_TO_HYPHEN = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
# Around a number, not in it. The last ones are invisible; they come with text from other programs.
SIGNS = " \t\r\n\"'«»“”„№#.,;:()[]<>\u00ad\u200b\u200e\u200f\u2060\ufeff"


@may_view_history
def page(request: HttpRequest, reader: Reader) -> HttpResponse:
    """?q= is one id or key, or several, separated by spaces, commas or line breaks."""
    asked, token = request.GET.get("q", ""), request.GET.get(PAGE)
    notes: list[str] = []
    reader = for_titles(reader)
    results = _search(reader, asked, token, notes)
    groups = make_groups(reader, results)
    if token is None and not notes and [len(group.hits) for group in groups] == [1]:
        return redirect(str(groups[0].hits[0]["url"]))
    missing = [group.query for group in groups if not group.hits]
    return render(
        request,
        "history/search.html",
        {
            **admin.site.each_context(request),
            "complete": complete_to.read(ENTITIES),
            "title": _("Search"),
            "query": asked,
            "groups": groups,
            "found": any(group.hits for group in groups),
            "shown": sum(len(group.hits) for group in groups),
            "missing": missing,
            "held_lines": _held(reader, missing),
            "in_old": _in_old(missing),
            "notes": notes,
            "more_url": _more(groups),
            "by_number": _by_number(results),
            "help": _help(reader),
            "by_client": any(CLIENT in dict(entity.search) for entity in ENTITIES),
            "entities": [title(entity) for entity in ENTITIES],
            "hide_finder": True,
        },
    )


def _search(reader: Reader, asked: str, token: str | None, notes: list[str]) -> dict[str, Results]:
    """What each text has found. The whole text is tried first, as given and without
    blanks around it; then its parts; then other spellings of what has found nothing."""
    texts = list(dict.fromkeys(text for text in _BETWEEN.split(asked) if text))
    whole = dict.fromkeys([asked, asked.strip(), *(texts if len(texts) == 1 else ())])
    for text in whole:
        try:
            results = timeline.search(reader, text, page_token=token)
        except BadParameterError:
            continue
        if results.found:
            return {text: results}
    if rest := texts[MAX_QUERIES:]:
        said = _("Only the first {n} were looked up.").format(n=MAX_QUERIES)
        label = _("Search for the other {n}").format(n=len(rest))
        address = _address({"q": " ".join(rest)})
        notes.append(format_html('{} <a href="{}">{}</a>', said, address, label))
    exact = timeline.search_all(reader, texts[:MAX_QUERIES])
    missing = [text for text, results in exact.items() if not results.found]
    together = asked.strip() if len(missing) == len(exact) > 1 else ""
    similar = _other_spellings(reader, [*missing, together])
    wanted = [together] if similar[together] else list(exact)
    spelled = {text: similar[text] for text in wanted if similar.get(text)}
    if spelled:
        note = _("Nothing matches {asked} exactly. Found with another spelling: {found}.")
        others = dict.fromkeys(each for its in spelled.values() for each in its)
        notes.append(note.format(asked=", ".join(spelled), found=", ".join(others)))
    found: dict[str, Results] = {}
    for text in wanted:
        if text in spelled:
            found |= spelled[text]
        elif exact[text].found or (text.strip(SIGNS) and not _is_word(text)):
            found[text] = exact[text]
    return found or exact


def _is_word(text: str) -> bool:
    """Whether it is a Russian word, as in “заявка 7708-2026-1”: no id or number is one."""
    return unicodedata.normalize("NFC", text).isalpha() and not text.isascii()


def _other_spellings(reader: Reader, texts: Sequence[str]) -> dict[str, dict[str, Results]]:
    """For each text what other spellings of it have found; the empty text has none."""
    wanted = {text: _spellings(text) for text in texts}
    results = timeline.search_all(
        reader, list({each: None for its in wanted.values() for each in its})
    )
    found: dict[str, dict[str, Results]] = {text: {} for text in wanted}
    for text, its in wanted.items():
        for each in filter(lambda each: results[each].found, its):
            # A key is found in both Unicode forms, an id only in its own.
            if unicodedata.normalize("NFC", each) == each or not found[text]:
                found[text][each] = results[each]
    return found


def _spellings(text: str) -> list[str]:
    """The text without signs around it, in capital and small letters, with letters of one alphabet,
    with plain hyphens, and in both Unicode forms; each once, without the text itself."""
    bare = unicodedata.normalize("NFC", text.strip(SIGNS))
    found = dict.fromkeys([*_letters(bare), *_letters(bare.translate(_TO_HYPHEN))])
    found |= dict.fromkeys(unicodedata.normalize("NFD", each) for each in found)
    found.pop(text, None)
    return [each for each in found if each]


def _letters(text: str) -> Iterator[str]:
    for each in (text, text.upper(), text.lower()):
        yield each
        yield each.translate(_TO_LATIN)
        yield each.translate(_TO_CYRILLIC)


def _more(groups: Sequence[Group]) -> str:
    """The address of the next page; empty at the end, and where several texts were looked up."""
    token = groups[0].next_token if len(groups) == 1 else None
    return _address({"q": groups[0].query, PAGE: token}) if token else ""


def _address(query: Mapping[str, str]) -> str:
    return f"{reverse('admin:history_search')}?{urlencode(query)}"


def _by_number(results: Mapping[str, Results]) -> str:
    """The number of a client, if that alone was searched and found; else empty."""
    texts = [text for text, its in results.items() if any(each.key == CLIENT for each in its.found)]
    return texts[0] if len(texts) == len(results) == 1 else ""


def _held(reader: Reader, missing: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Id, kind and sentences of what came, but could not be stored."""
    ids = [text for text in missing if storable(text)]
    lines = held.of_unknown(reader, ENTITIES, ids) if ids else []
    return [(id, title(entity), said) for id, entity, said in lines]


def _in_old(missing: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Where what was not found opens if the old service has it."""
    if service() is None:
        return []
    ids = [text for text in missing if storable(text)]
    kinds = [entity for entity in ENTITIES if not entity.parent or len(ids) == 1]
    return [(id, [(title(kind), links.landing(kind, id)) for kind in kinds]) for id in ids]


def _help(reader: Reader) -> list[str]:
    """What the reader can search, a line for each kind."""
    allowed, lines = masking.searchable_keys(reader.viewer), []
    for entity in ENTITIES:
        names = [key for key, _pointer in entity.search if f"{entity.name} {key}" in allowed]
        keys = dict.fromkeys(_within(key_title(entity, key)) for key in names)
        lines.append(f"{title(entity)}: {', '.join([_('its whole id'), *keys])}")
    return lines


def _within(label: str) -> str:
    """A label within a sentence: without its capital letter, unless it is an abbreviation."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label
