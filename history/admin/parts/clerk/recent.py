"""What a login opened last, for its first page: title, status, and what happened last."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from django.http import HttpRequest

from history import timeline
from history.admin.parts import damage, heads, links
from history.admin.parts.cards import fields_of, kind_text, title
from history.admin.parts.clerk import sentences
from history.admin.parts.found import make_groups
from history.admin.parts.headline import headline, status
from history.base import clock
from history.base.signals import looks_back
from history.blocks.form import DamagedBlockError
from history.entities import BY_NAME
from history.need_to_know import NeedToKnowError, RuleFailedError
from history.requests import accesses, worker_shares
from history.timeline import Include, Reader
from history.versions import Named

MOST = 6  # that have a line; the others are links
CHANGES = frozenset({Include.CHANGES})


def of_login(request: HttpRequest) -> dict[str, object]:
    """recent: a line for each entity. others: kind, id, title and address of those before them.
    client: of the one that was opened last, with what belongs to it; None where no
    number is known. Only what the login may see."""
    opened, look = _opened(request), accesses.of(request)
    look.listed = bool(opened)
    reader = timeline.of_request(request.user, look)
    damage.tell(request, reader)
    with worker_shares.of_login(request.user.pk):
        newest, before = opened[:MOST], opened[MOST:]
        lines = {each: line for each in newest if (line := _line(reader, each))}
        client = _client(reader, next(iter(lines))) if lines else None
        shown = timeline.visible(reader, before)
        documents = timeline.documents(reader, shown)
    others = [
        (title(its), id, headline(documents.get((its, id))) or id, links.landing(its, id))
        for its, id in before
        if (its, id) in shown
    ]
    return {"recent": [*lines.values()], "others": others, "client": client}


def _opened(request: HttpRequest) -> list[Named]:
    """What the login opened last, newest first: in this session, then before."""
    found = dict.fromkeys(heads.opened(request))
    answers: Iterable[tuple[Any, Any]] = looks_back.send(None, user=request.user)
    for _receiver, before in answers:
        found |= {(BY_NAME[name], id): None for name, id in before if name in BY_NAME}
    return list(found)[: heads.MAX_OPENED]


def _line(of_page: Reader, place: Named) -> dict[str, object] | None:
    """None where the rule of need-to-know hides it now."""
    entity, id = place
    viewer = replace(of_page.viewer, look=accesses.Look())
    reader = replace(of_page, viewer=viewer)
    line: dict[str, object] = {"id": id, "kind": title(entity), "url": links.landing(entity, id)}
    try:
        asked = {"page_size": 1, "include": CHANGES}
        [last] = heads.versions(reader, entity, id, whole=entity.root, **asked).versions
        newest = timeline.newest(reader, entity, id)
    except timeline.NotFoundError:
        return line
    except DamagedBlockError as error:
        of_page.damaged[entity, id, None] = error  # whoever may not open it got another error
        return line
    except (NeedToKnowError, RuleFailedError):
        closed = (each for each in viewer.look.applications if not viewer.decided.get(each))
        of_page.viewer.look.leave_out(closed)
        return None
    of_page.viewer.look.read(viewer.look.applications)
    plain = [row for row in sentences.rows(last) if row.path]  # not of the whole document
    return line | {
        "title": headline(newest.data),
        "status": status(newest.data, fields_of(entity)),
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
