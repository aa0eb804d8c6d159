"""Compares what the API answers with what the reference says, call by call."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.test import Client

from tests.oracle import blame, values
from tests.oracle.reference import KINDS, ROOT, Filters, Stored, World
from tests.oracle.values import ABSENT, Path, Value, exact, pointed, read, select

Answer = Any
# How much was compared, by what it is. Printed by `python -m tests.oracle`.
COUNTS: Counter[str] = Counter()


class Api:
    """The API of the application that is under test."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, call: str, **parameters: object) -> Answer:
        """The `data` of a successful answer."""
        status, body = self.answer(call, **parameters)
        assert status == 200, (call, parameters, body)
        return body["data"]

    def answer(self, call: str, **parameters: object) -> tuple[int, Answer]:
        given = {name: _text(value) for name, value in parameters.items() if value is not None}
        response = self._client.get(f"/api/v1/{call}", given)
        COUNTS["requests"] += 1
        return response.status_code, read(response.content)

    def pages(self, call: str, part: str, **parameters: object) -> list[Answer]:
        """What is in all pages together."""
        found: list[Answer] = []
        token = None
        while True:
            page = self.get(call, pageToken=token, **parameters)
            assert len(page[part]) <= int(str(parameters.get("pageSize", 50)))
            found += page[part]
            token = page.get("nextPageToken")
            COUNTS["pages"] += 1
            if token is None:
                return found


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def address(one: Stored | tuple[str, str]) -> str:
    kind, id = one if isinstance(one, tuple) else one.entity
    return f"history/{kind}/{id}"


def place(answer: Answer) -> tuple[str, str, int, datetime]:
    moment = datetime.fromisoformat(answer["updatedAt"])
    return answer["kind"], answer["id"], int(answer["version"].text), moment


def places(stored: Sequence[Stored]) -> list[tuple[str, str, int, datetime]]:
    return [(one.kind, one.id, one.version, one.at) for one in stored]


def given(filters: Filters) -> Mapping[str, object]:
    return {
        "from": filters.since,
        "to": filters.until,
        "author": filters.author,
        "clientId": filters.client,
        "type": filters.type,
    }


def version(answer: Answer, one: Stored, world: World) -> None:
    """All that is said of one version, with all its parts."""
    COUNTS["versions"] += 1
    assert place(answer) == (one.kind, one.id, one.version, one.at)
    assert exact(answer["entity"]) == exact(one.data)
    assert (answer["type"], answer["author"], answer["clientId"]) == (
        *(one.type, one.author, one.client),
    )
    assert answer.get("productInstanceId") == one.application
    previous = world.previous(one)
    assert answer["previousVersion"] == (values.Number(str(previous.version)) if previous else None)
    assert [int(number.text) for number in answer["missingVersions"]] == world.missing(one)
    if previous is None:
        assert (answer["diff"], answer["changes"]) == (None, [])
    else:
        assert answer["olderVersions"] is None
        difference(answer, previous.data, one.data)


def difference(answer: Answer, old: Value, new: Value) -> None:
    """A patch, exact to the digit, and changes that are where they say."""
    COUNTS["patches"] += 1
    assert exact(values.patched(old, answer["diff"])) == exact(new)
    assert (answer["changes"] == []) == (old == new)
    for change in answer["changes"]:
        COUNTS["changes"] += 1
        _change(change, old, new)


def _change(change: Answer, old: Value, new: Value) -> None:
    kind, path, key_path = change["kind"], change["path"], values.parsed(change["keyPath"])
    assert ("old" in change, "new" in change) == (kind != "added", kind != "removed")
    if kind == "removed":
        assert exact(pointed(path, old)) == exact(change["old"])
        return
    assert exact(pointed(path, new)) == exact(change["new"])
    assert [exact(value) for value in select(key_path, new)] == [exact(change["new"])]
    if kind == "changed":
        assert change["old"] != change["new"]
    if kind == "moved":
        assert path.endswith(f"/{change['toIndex']}")


def timeline(
    api: Api, world: World, entity: tuple[str, str], filters: Filters, **form: Any
) -> None:
    """A filtered timeline, page by page."""
    COUNTS["timelines"] += 1
    found = api.pages(address(entity), "history", **given(filters), **form, include="diff")
    expected = world.timeline(*entity, filters, form["sort"], form["order"])
    assert [place(answer) for answer in found] == places(expected)


def path_filter(api: Api, world: World, entity: tuple[str, str], path: Path, size: int) -> None:
    """Which versions a path filter keeps."""
    form = {"path": values.written(path), "pageSize": size, "include": "changes"}
    found = {place(answer) for answer in api.pages(address(entity), "history", **form)}
    for one in world.of(*entity):
        COUNTS["path filters"] += 1
        (is_place,) = places([one])
        previous = world.previous(one)
        assert previous is not None or is_place not in found
        if previous is not None:
            least, most = _bounds(path, previous.data, one.data)
            assert least <= (is_place in found) <= most, (values.written(path), one)


def _bounds(path: Path, old: Value, new: Value) -> tuple[bool, bool]:
    """Whether a path must be touched, and whether it can be.

    Both are the same where items are named by their key. An index, a `*`, an item whose other key
    changed, and the move of an item depend on how the items are matched: such a path is touched at
    least if other values are there, and at most if the list differs.
    """
    fixed = next((n for n in range(len(path)) if _is_matched(path[: n + 1], old, new)), len(path))
    if fixed == len(path) and not (path and path[-1].kind == "item"):
        differs = values.differ(path, old, new)
        return differs, differs
    most = values.differ(path[: min(fixed, len(path) - 1)], old, new)
    if any(step.kind == "any" for step in path):
        before, after = select(path, old), select(path, new)
        return any(value not in before for value in after) or len(before) != len(after), most
    return values.differ(path, old, new), most


def _is_matched(path: Path, old: Value, new: Value) -> bool:
    """Whether it depends on the matching of items what the last step of the path is compared with.
    An item that has one key as before and got another is the same item by one of the two only."""
    step = path[-1]
    if step.kind != "item":
        return step.kind == "any" or step.text.isdecimal()
    return any(
        values.named(was, key) != values.named(now, key)
        for was, now in zip(select(path, old), select(path, new), strict=False)
        for key in blame.KEYS
    )


def field(api: Api, world: World, entity: tuple[str, str], path: Path, size: int) -> None:
    """The history of one field, in pages and whole."""
    COUNTS["fields"] += 1
    call, form = f"{address(entity)}/fields", {"path": values.written(path)}
    expected = world.field(*entity, path)
    for each in (500, size):
        found = api.pages(call, "values", **form, pageSize=each)
        COUNTS["field values"] += len(expected)
        assert [
            (exact(answer.get("value", ABSENT)), int(answer["version"].text), _until(answer))
            for answer in found
        ] == [(exact(value), one.version, until) for value, one, until in expected]
        for answer, (_, one, _) in zip(found, expected, strict=True):
            _origin(answer, one, world)


def _until(answer: Answer) -> datetime | None:
    return datetime.fromisoformat(answer["until"]) if answer["until"] else None


def _origin(answer: Answer, one: Stored, world: World) -> None:
    assert (int(answer["version"].text), datetime.fromisoformat(answer["updatedAt"])) == one.key
    assert (answer["author"], answer["clientId"], answer["type"]) == (
        *(one.author, one.client, one.type),
    )
    if world.previous(one):
        assert answer["exact"] == (not world.missing(one))


def blamed(api: Api, world: World, entity: tuple[str, str]) -> None:
    """Who last changed each leaf, and that its key path has the same origin as a field."""
    answer = api.get(f"{address(entity)}/blame")
    newest = world.newest(*entity)
    assert place(answer) == (*entity, *newest.key)
    expected = blame.leaves(world, *entity)
    assert [leaf["path"] for leaf in answer["blame"]] == [leaf.path for leaf in expected]
    for found, leaf in zip(answer["blame"], expected, strict=True):
        COUNTS["blamed leaves"] += 1
        assert exact(found["value"]) == exact(leaf.value)
        assert exact(select(values.parsed(found["keyPath"]), newest.data)) == [exact(leaf.value)]
        who = [one for one in leaf.origins if one.version == int(found["version"].text)]
        assert who, (found, leaf)
        if len(leaf.origins) == 1:
            COUNTS["blamed leaves, certain"] += 1
            _origin(found, who[0], world)


def at(api: Api, world: World, entity: tuple[str, str], moment: datetime) -> None:
    COUNTS["at"] += 1
    expected = world.at(*entity, moment)
    status, body = api.answer(f"{address(entity)}/at", time=moment)
    if expected is None:
        assert (status, body["status"]) == (404, "error")
    else:
        answer = body["data"]
        assert place(answer) == (*entity, *expected.key)
        assert exact(answer["entity"]) == exact(expected.data)
        assert answer["deleted"] == (expected.type == "DELETE")
        uncertain(answer, [expected], world)


def single(api: Api, world: World, entity: tuple[str, str], number: int) -> None:
    COUNTS["single versions"] += 1
    there = [one for one in world.of(*entity) if one.version == number]
    status, body = api.answer(f"{address(entity)}/versions/{number}")
    if there:
        version(body["data"], there[-1], world)
    else:
        assert (status, body["status"]) == (404, "error")


def compare(api: Api, world: World, entity: tuple[str, str], old: int, new: int) -> None:
    COUNTS["compared"] += 1
    before, after = (
        [one for one in world.of(*entity) if one.version == number][-1] for number in (old, new)
    )
    answer = api.get(f"{address(entity)}/compare", **{"from": old, "to": new})
    assert (place(answer["from"]), place(answer["to"])) == (*places([before, after]),)
    difference(answer, before.data, after.data)


def application(api: Api, world: World, id: str, filters: Filters, **form: Any) -> None:
    """The merged timeline, page by page."""
    expected = world.application(id, filters, form["order"])
    if not world.application(id, Filters(), "asc"):
        assert api.answer(f"applications/{id}/history")[0] == 404
        return
    COUNTS["merged timelines"] += 1
    found = api.pages(f"applications/{id}/history", "history", **given(filters), **form)
    assert [place(answer) for answer in found] == places(expected)
    for answer, one in zip(found, expected, strict=True):
        version(answer, one, world)


def application_at(api: Api, world: World, id: str, moment: datetime) -> None:
    COUNTS["applications at"] += 1
    expected = world.application_at(id, moment)
    status, body = api.answer(f"applications/{id}/at", time=moment)
    if not expected:
        assert (status, body["status"]) == (404, "error")
        return
    answer = body["data"]
    root = answer["application"]
    found = [root] if root else []
    for kind in KINDS[1:]:
        found += answer["children"][kind]
    alive = [one for one in expected if one.kind == ROOT or one.type != "DELETE"]
    assert [place(each) for each in found] == places(alive)
    gone = [one for one in expected if one.kind != ROOT and one.type == "DELETE"]
    assert [place(each) for each in answer["deleted"]] == places(gone)
    for each, one in zip([*found, *answer["deleted"]], [*alive, *gone], strict=True):
        assert exact(each["entity"]) == exact(one.data)
    uncertain(answer, [*alive, *gone], world)


def uncertain(answer: Any, state: list[Stored], world: World) -> None:
    """What a state at a moment says of versions that may have come before it."""
    lacking = [(one.kind, one.id, world.missing_after(one)) for one in state]
    found = [
        (each["kind"], each["id"], [int(number.text) for number in each["missingVersions"]])
        for each in answer["uncertain"]
    ]
    assert found == [each for each in lacking if each[2]]


def search(api: Api, world: World, text: str, size: int) -> None:
    """By id in all kinds, then applications by business key; whole and in pages."""
    COUNTS["searches"] += 1
    expected = world.search(text)
    for each in (500, size):
        found = api.pages("search", "results", q=text, pageSize=each)
        assert [(a["kind"], a["id"], datetime.fromisoformat(a["updatedAt"])) for a in found] == [
            (one.kind, one.id, one.moment) for one in expected
        ]
        for answer, one in zip(found, expected, strict=True):
            COUNTS["search results"] += 1
            assert answer["foundBy"] in (one.names or {"id"})
            assert {(d["kind"], d["id"]) for d in answer["foundIn"]} == one.carriers
            newest = one.newest
            assert answer["type"] == (newest.type if newest else None)
            assert answer["version"] == (values.Number(str(newest.version)) if newest else None)
            owner = (newest.application if newest else None) or one.id
            assert answer["productInstanceId"] == owner
