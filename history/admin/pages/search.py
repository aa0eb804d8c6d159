"""The search by id, in all kinds, or by business key. A single hit opens at once."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from history import timeline
from history.admin.components import links, open_messages
from history.admin.components.cards import get_kind_title
from history.admin.components.headline import CLIENT, limit_to_title_fields
from history.admin.components.search_results import SearchGroup, get_key_title, make_groups
from history.admin.pages.permission import require_history_permission
from history.completeness import complete_to
from history.kinds.entities import ENTITIES
from history.policy import masking
from history.timeline import BadParameterError, HistoryReader, SearchPage
from history.timeline.fallback.client import load_endpoint
from history.timeline.query import is_storable_id

MAX_QUERIES = 40
PAGE = "page"
_BETWEEN = re.compile(r"[\s,;]+")
# Latin letters, and the Cyrillic letters that look the same.
_LATIN, _CYRILLIC = "ABEKMHOPCTYXaeopcyx", "АВЕКМНОРСТУХаеорсух"
_TO_CYRILLIC = str.maketrans(_LATIN, _CYRILLIC)
_TO_LATIN = str.maketrans(_CYRILLIC, _LATIN)
# The hyphens, dashes and the minus sign that word processors put in the place of a hyphen.
_TO_HYPHEN = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")
# Characters that people enter around a number. The last six are invisible, as in copied text.
SIGNS = " \t\r\n\"'«»“”„№#.,;:()[]<>\u00ad\u200b\u200e\u200f\u2060\ufeff"


@require_history_permission
def show_search(request: HttpRequest, reader: HistoryReader) -> HttpResponse:
    """Search for ?q=: one or several ids or keys, separated by spaces, commas or line breaks."""
    query, token = request.GET.get("q", ""), request.GET.get(PAGE)
    notes: list[str] = []
    reader = limit_to_title_fields(reader)
    results = _run_search(reader, query, token, notes)
    groups = make_groups(reader, results)
    if token is None and not notes and [len(group.hits) for group in groups] == [1]:
        return redirect(str(groups[0].hits[0]["url"]))
    missing = [group.query for group in groups if not group.hits]
    return render(
        request,
        "history/search.html",
        {
            **admin.site.each_context(request),
            "complete": complete_to.read_completeness(ENTITIES),
            "title": _("Search"),
            "query": query,
            "groups": groups,
            "found": any(group.hits for group in groups),
            "shown": sum(len(group.hits) for group in groups),
            "missing": missing,
            "quarantined_documents": _describe_quarantined(reader, missing),
            "in_old": _link_to_old_service(missing),
            "notes": notes,
            "more_url": _build_next_url(groups),
            "by_number": _find_client_number(results),
            "help": _describe_search_keys(reader),
            "by_client": any(CLIENT in dict(entity.search) for entity in ENTITIES),
            "entities": [get_kind_title(entity) for entity in ENTITIES],
            "hide_finder": True,
        },
    )


def _run_search(
    reader: HistoryReader, query: str, token: str | None, notes: list[str]
) -> dict[str, SearchPage]:
    """Search, and return the results by the text that was looked up.

    The whole query is looked up first, as entered and then without blanks around it. If it has no
    result, its parts are looked up. Last, other spellings are tried for parts without a result.

    Args:
        notes: The function adds sentences to this list that tell the viewer how the query was
            changed: which part was left out, and which spelling was used.
    """
    texts = list(dict.fromkeys(text for text in _BETWEEN.split(query) if text))
    whole = dict.fromkeys([query, query.strip(), *(texts if len(texts) == 1 else ())])
    for text in whole:
        try:
            page = timeline.search(reader, text, page_token=token)
        except BadParameterError:
            continue
        if page.results:
            return {text: page}
    if other_texts := texts[MAX_QUERIES:]:
        cut_text = _("Only the first {n} were looked up.").format(n=MAX_QUERIES)
        label = _("Search for the other {n}").format(n=len(other_texts))
        address = _build_search_url({"q": " ".join(other_texts)})
        notes.append(format_html('{} <a href="{}">{}</a>', cut_text, address, label))
    exact = timeline.search_all(reader, texts[:MAX_QUERIES])
    missing = [text for text, page in exact.items() if not page.results]
    joined = query.strip() if len(missing) == len(exact) > 1 else ""
    similar = _search_other_spellings(reader, [*missing, joined])
    shown_texts = [joined] if similar[joined] else list(exact)
    spelled = {text: similar[text] for text in shown_texts if similar.get(text)}
    if spelled:
        note = _("Nothing matches {asked} exactly. Found with another spelling: {found}.")
        spellings = dict.fromkeys(
            spelling for results_ in spelled.values() for spelling in results_
        )
        notes.append(note.format(asked=", ".join(spelled), found=", ".join(spellings)))
    results_by_text: dict[str, SearchPage] = {}
    for text in shown_texts:
        if text in spelled:
            results_by_text |= spelled[text]
        elif exact[text].results or (text.strip(SIGNS) and not _is_word(text)):
            results_by_text[text] = exact[text]
    return results_by_text or exact


def _is_word(text: str) -> bool:
    """Return whether a text consists of letters, at least one of them not ASCII.

    Such a text is taken for a word and not for an id. People also enter words next to an id: in
    “заявка 7708” the first part is a word.
    """
    return unicodedata.normalize("NFC", text).isalpha() and not text.isascii()


def _search_other_spellings(
    reader: HistoryReader, texts: Sequence[str]
) -> dict[str, dict[str, SearchPage]]:
    """Look up other spellings of texts.

    Returns:
        For each text, its spellings that have results, with these results.
    """
    spellings_by_text = {text: _generate_spellings(text) for text in texts}
    results = timeline.search_all(
        reader,
        list(
            {spelling: None for spellings in spellings_by_text.values() for spelling in spellings}
        ),
    )
    results_by_text: dict[str, dict[str, SearchPage]] = {text: {} for text in spellings_by_text}
    for text, spellings in spellings_by_text.items():
        for spelling in filter(lambda spelling: results[spelling].results, spellings):
            # A key is found in any Unicode normal form, an id only in the form that it has.
            if unicodedata.normalize("NFC", spelling) == spelling or not results_by_text[text]:
                results_by_text[text][spelling] = results[spelling]
    return results_by_text


def _generate_spellings(text: str) -> list[str]:
    """Return other spellings of a text, without repetitions and without the text itself.

    Blanks, quotation marks and other punctuation around the text are removed from every spelling.
    The spellings combine three changes: dashes become hyphens; all letters become capital or small;
    letters that look the same in Latin and Cyrillic become all Latin or all Cyrillic. Each spelling
    is in the Unicode normal forms NFC and NFD.
    """
    bare = unicodedata.normalize("NFC", text.strip(SIGNS))
    spellings = dict.fromkeys(
        [*_generate_letter_variants(bare), *_generate_letter_variants(bare.translate(_TO_HYPHEN))]
    )
    spellings |= dict.fromkeys(unicodedata.normalize("NFD", spelling) for spelling in spellings)
    spellings.pop(text, None)
    return [spelling for spelling in spellings if spelling]


def _generate_letter_variants(text: str) -> Iterator[str]:
    for variant in (text, text.upper(), text.lower()):
        yield variant
        yield variant.translate(_TO_LATIN)
        yield variant.translate(_TO_CYRILLIC)


def _build_next_url(groups: Sequence[SearchGroup]) -> str:
    """Return the address of the next page of results.

    Empty if there is no next page, or if several texts were looked up.
    """
    token = groups[0].next_token if len(groups) == 1 else None
    return _build_search_url({"q": groups[0].query, PAGE: token}) if token else ""


def _build_search_url(query: Mapping[str, str]) -> str:
    return f"{reverse('admin:history_search')}?{urlencode(query)}"


def _find_client_number(results: Mapping[str, SearchPage]) -> str:
    """Return the text that was searched for if it is the number of a client, otherwise "".

    Also return "" if several texts were searched for.

    Args:
        results: The results by the text that was searched for.
    """
    texts = [
        text
        for text, page in results.items()
        if any(result.key == CLIENT for result in page.results)
    ]
    return texts[0] if len(texts) == len(results) == 1 else ""


class QuarantinedDocument(NamedTuple):
    """A document that was searched for by its id, and is only in quarantine."""

    id: str
    kind_title: str
    sentences: list[str]  # on its messages


def _describe_quarantined(
    reader: HistoryReader, missing: Sequence[str]
) -> list[QuarantinedDocument]:
    """Return the documents that occur only in quarantined messages.

    Args:
        missing: The searched texts without a result. Only documents with these ids are returned.
    """
    ids = [text for text in missing if is_storable_id(text)]
    documents = open_messages.describe_unknown_documents(reader, ENTITIES, ids) if ids else []
    return [
        QuarantinedDocument(document.id, get_kind_title(document.kind), document.sentences)
        for document in documents
    ]


def _link_to_old_service(missing: Sequence[str]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return links to timelines that the old service may have. Empty if there is no old service.

    Args:
        missing: The searched texts without a result.

    Returns:
        Pairs of an id and its links. An id does not tell the kind of the document, so there is a
        link for each possible kind: the title of the kind, and the address.
    """
    if load_endpoint() is None:
        return []
    ids = [text for text in missing if is_storable_id(text)]
    kinds = [entity for entity in ENTITIES if not entity.parent or len(ids) == 1]
    return [
        (id, [(get_kind_title(kind), links.build_landing_url(kind, id)) for kind in kinds])
        for id in ids
    ]


def _describe_search_keys(reader: HistoryReader) -> list[str]:
    """Return, for each kind, a line with the keys that the viewer may search by."""
    allowed, lines = masking.list_searchable_keys(reader.viewer), []
    for entity in ENTITIES:
        names = [key for key, _pointer in entity.search if f"{entity.name} {key}" in allowed]
        keys = dict.fromkeys(_lower_label(get_key_title(entity, key)) for key in names)
        lines.append(f"{get_kind_title(entity)}: {', '.join([_('its whole id'), *keys])}")
    return lines


def _lower_label(label: str) -> str:
    """Return a label with a small first letter, unless it begins with an abbreviation."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label
