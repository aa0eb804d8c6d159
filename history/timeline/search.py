"""Search by id, or by a business key that any version of a document had."""

from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from django.utils.translation import gettext as _

from history.documents.exactjson import Json
from history.entities import ENTITIES, SEARCH_VALUE_LENGTH
from history.timeline import tokens
from history.timeline.hits import MARK, Carrier, Found, find
from history.timeline.query import DEFAULT_PAGE_SIZE, BadParameterError, check_size
from history.timeline.reading import Reader
from history.timeline.row import parse


@dataclass(frozen=True, slots=True)
class Results:
    """Entities with the id first, in the order of ENTITIES; then applications with the key, newest
    change first. Each is there once. next_token: None at the end. limited: more documents have the
    key than MAX_DOCUMENTS, and only those seen last were looked at."""

    found: tuple[Found, ...]
    next_token: str | None
    limited: bool


def search(
    reader: Reader, text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None
) -> Results:
    """A page of what has this id, or this value of a business key, letter for letter.

    Each page has the newest of what was on no earlier one, which the token says, so nothing is lost
    or repeated while versions arrive. A fixed number of queries. Raises BadParameterError.
    """
    check_size(size)
    if not _searchable(text):
        why = _("must have 1 to {n} characters")
        raise BadParameterError("q", why.format(n=SEARCH_VALUE_LENGTH))
    binding = ("search", text, "marks")
    marks = b"" if page_token is None else b64decode(tokens.read_token(binding, page_token)[0])
    shown = {marks[at : at + MARK] for at in range(0, len(marks), MARK)}
    found = find(reader, [text])[text]
    rest = [hit for hit in found.hits if hit.mark not in shown]
    here, following = rest[:size], None
    if len(rest) > size:
        marks += b"".join(hit.mark for hit in here)
        following = tokens.issue_token(binding, (b64encode(marks).decode(),))
    return Results(tuple(filter(None, _load(reader, here))), following, found.limited)


def search_all(
    reader: Reader, texts: Sequence[str], size: int = DEFAULT_PAGE_SIZE
) -> dict[str, Results]:
    """The first results of each of these texts, without tokens. As many queries as for one."""
    found = find(reader, list(filter(_searchable, texts)))
    loaded = iter(_load(reader, [hit for its in found.values() for hit in its.hits[:size]]))
    results = {
        text: Results(tuple(filter(None, islice(loaded, len(its.hits[:size])))), None, its.limited)
        for text, its in found.items()
    }
    return {text: results.get(text, Results((), None, limited=False)) for text in texts}


def documents(reader: Reader, carriers: Collection[Carrier]) -> dict[Carrier, Json]:
    """The newest snapshots of these, without those of which the store has none. For a deleted one
    it may be older than its newest version. One query for each kind."""
    found: dict[Carrier, Json] = {}
    for entity in ENTITIES:
        ids = [carrier.id for carrier in carriers if carrier.entity is entity]
        for row in reader.newest_documents(entity, ids):
            found[Carrier(entity, row.id)] = parse(row.data)
    return found


def _searchable(text: str) -> bool:
    """Whether this text can be an id or a business key."""
    return 0 < len(text) <= SEARCH_VALUE_LENGTH and "\0" not in text


def _load(reader: Reader, wanted: Sequence[Found]) -> list[Found | None]:
    """These with their newest versions; None for one that retention has just removed."""
    places = [(*each.place, each.newest) for each in wanted if each.newest]
    rows = {Carrier(*place[:2]): row for place, row in reader.bodies(places).items()}
    return [
        replace(each, row=rows.get(each.place))
        if each.newest is None or each.place in rows
        else None
        for each in wanted
    ]
