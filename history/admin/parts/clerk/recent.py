"""What a login opened last, for its first page: title, status, and what happened last."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.http import HttpRequest

from history import timeline
from history.admin.parts import damage, heads, held, links
from history.admin.parts.cards import fields_of, kind_text, title
from history.admin.parts.clerk import sentences
from history.admin.parts.found import make_groups
from history.admin.parts.headline import for_titles, headline, status
from history.base import clock
from history.base.signals import looks_back
from history.blocks.form import DamagedBlockError
from history.entities import BY_NAME, ENTITIES
from history.need_to_know import NeedToKnowError, RuleFailedError
from history.requests import accesses
from history.timeline import Include, OpenQuestion, Reader, Version
from history.versions import Named

MOST = 6  # that have a line; the others are links
# A line says what changed in documents up to this size; to compare larger ones takes too long.
COMPARED_BYTES = 256 * 1024
CHANGES = frozenset({Include.CHANGES})


def of_login(request: HttpRequest) -> dict[str, object]:
    """recent: a line for each entity. others: kind, id, title and address of those before them.
    client: of the one that was opened last, with what belongs to it; None where no
    number is known. Only what the login may see."""
    opened, look = _opened(request), accesses.of(request)
    look.listed = bool(opened)
    reader = for_titles(timeline.of_request(request.user, look))
    damage.tell(request, reader)
    newest, before = opened[:MOST], opened[MOST:]
    last = dict(_last_versions(reader, newest))
    client = _client(reader, next(iter(last))) if last else None
    shown = timeline.visible(reader, before)
    documents = timeline.documents(reader, [*last, *shown])
    deleted = timeline.without_document(reader, [*last])
    applications = [id for entity, id in last if entity.root]
    messages = reader.ask_open_messages(OpenQuestion(ENTITIES, list(last), applications))
    recent = [
        {
            "id": id,
            "kind": title(entity),
            "url": links.landing(entity, id),
            "title": headline(documents.get((entity, id))),
            "held": held.mark(timeline.held_of((entity, id), messages)),
            "status": ""
            if (entity, id) in deleted
            else status(documents.get((entity, id)), fields_of(entity)),
            **(_what_happened(version) if version else {}),
        }
        for (entity, id), version in _with_changes(reader, last).items()
    ]
    others = [
        (title(its), id, headline(documents.get((its, id))) or id, links.landing(its, id))
        for its, id in before
        if (its, id) in shown
    ]
    return {"recent": recent, "others": others, "client": client}


def _opened(request: HttpRequest) -> list[Named]:
    """What the login opened last, newest first: in this session, then before."""
    found = dict.fromkeys(heads.opened(request))
    answers: Iterable[tuple[Any, Any]] = looks_back.send(None, user=request.user)
    for _receiver, before in answers:
        found |= {(BY_NAME[name], id): None for name, id in before if name in BY_NAME}
    return list(found)[: heads.MAX_OPENED]


def _last_versions(
    of_page: Reader, places: Iterable[Named]
) -> Iterator[tuple[Named, Version | None]]:
    """Each entity with the newest version of it, or of the application and its children; None where
    the store has none. Without those that the rule of need-to-know hides now."""
    for entity, id in places:
        viewer = replace(of_page.viewer, look=accesses.Look())
        reader = replace(of_page, viewer=viewer).without_documents()
        asked: dict[str, Any] = {"page_size": 1, "include": frozenset()}
        try:
            [last] = heads.versions(reader, entity, id, whole=entity.root, **asked).versions
        except timeline.NotFoundError:
            yield (entity, id), None
        except DamagedBlockError as error:
            of_page.damaged[entity, id, None] = error  # whoever may not open it got another error
            yield (entity, id), None
        except (NeedToKnowError, RuleFailedError):
            closed = (each for each in viewer.look.applications if not viewer.decided.get(each))
            of_page.viewer.look.leave_out(closed)
        else:
            of_page.viewer.look.read(viewer.look.applications)
            yield (entity, id), last


def _with_changes(
    reader: Reader, last: Mapping[Named, Version | None]
) -> dict[Named, Version | None]:
    """Return the same versions with their changes, unless their documents are large."""
    found = dict(last)
    whole = replace(reader, fields=None)
    compared = {
        opened: version
        for opened, version in last.items()
        if version is not None and version.previous_version is not None
    }
    carriers = {(version.entity, version.id) for version in compared.values()}
    sizes = reader.newest_bytes(carriers, COMPARED_BYTES)
    for opened, version in compared.items():
        entity, id = version.entity, version.id
        if sizes[entity, id] <= COMPARED_BYTES:
            # Retention has just removed it, or it cannot be read: then nothing is said of it.
            with suppress(timeline.NotFoundError, DamagedBlockError):
                found[opened] = timeline.version(
                    whole, entity, id, version.version, CHANGES, version.updated_at
                )
    return found


def _what_happened(last: Version) -> dict[str, object]:
    plain = [row for row in sentences.rows(last) if row.path]  # not of the whole document
    return {
        "at": last.updated_at,
        "who": heads.changed_by(last),
        "what": sentences.change(plain[0]) if plain else kind_text(last.type),
        "more": max(0, len(plain) - 1),
    }


def _client(reader: Reader, place: Named) -> dict[str, object] | None:
    try:
        numbers = dict.fromkeys(_numbers(reader, place))
    except (timeline.NotFoundError, NeedToKnowError, RuleFailedError, DamagedBlockError):
        return None
    for number in numbers:
        [group] = make_groups(reader, {number: timeline.search(reader, number, MOST)})
        if group.hits:
            return {"number": number, "hits": group.hits}
    return None


def _numbers(reader: Reader, place: Named) -> Iterator[str]:
    """The client numbers that the documents of an application, or a child, have now."""
    entity, id = place
    if entity.root:
        documents = [
            (child.entity, child.data)
            for child in timeline.application_at(reader, id, clock.now(), heads.MOST_PARTS).children
        ]
    else:
        documents = [(entity, timeline.newest(reader, entity, id).data)]
    for kind, data in documents:
        yield from heads.client_numbers(reader, kind, data)
