"""Compares what the API answers with what the reference says, call by call."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.test import Client

from tests.oracle import blame, values
from tests.oracle.reference import KINDS, ROOT, ReferenceFilters, ReferenceStore, StoredVersion
from tests.oracle.values import ABSENT, Path, Value, find_at_pointer, make_exact, parse_json, select

Answer = Any
# How much was compared, by the kind of comparison. `python -m tests.oracle` prints it.
COUNTS: Counter[str] = Counter()


class OracleApi:
    """A client of the API under test."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get_data(self, call: str, **parameters: object) -> Answer:
        """Return the `data` of an answer, which must be successful."""
        status, body = self.get_answer(call, **parameters)
        assert status == 200, (call, parameters, body)
        return body["data"]

    def get_answer(self, call: str, **parameters: object) -> tuple[int, Answer]:
        query = {
            name: _format_parameter(value)
            for name, value in parameters.items()
            if value is not None
        }
        response = self._client.get(f"/api/v1/{call}", query)
        COUNTS["requests"] += 1
        return response.status_code, parse_json(response.content)

    def collect_pages(self, call: str, part: str, **parameters: object) -> list[Answer]:
        """Return the entries of all pages.

        Args:
            part: The field of a page that has its entries.
        """
        answers: list[Answer] = []
        token = None
        while True:
            page = self.get_data(call, pageToken=token, **parameters)
            assert len(page[part]) <= int(str(parameters.get("pageSize", 50)))
            answers += page[part]
            token = page.get("nextPageToken")
            COUNTS["pages"] += 1
            if token is None:
                return answers


def _format_parameter(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def make_address(target: StoredVersion | tuple[str, str]) -> str:
    kind, id = target if isinstance(target, tuple) else target.entity
    return f"history/{kind}/{id}"


def get_position(answer: Answer) -> tuple[str, str, int, datetime]:
    moment = datetime.fromisoformat(answer["updatedAt"])
    return answer["kind"], answer["id"], int(answer["version"].text), moment


def list_positions(stored: Sequence[StoredVersion]) -> list[tuple[str, str, int, datetime]]:
    return [(version.kind, version.id, version.version, version.moment) for version in stored]


def make_parameters(filters: ReferenceFilters) -> Mapping[str, object]:
    return {
        "from": filters.since,
        "to": filters.until,
        "author": filters.author,
        "clientId": filters.client,
        "type": filters.type,
    }


def check_version(answer: Answer, version: StoredVersion, model: ReferenceStore) -> None:
    """Check all fields of one version in an answer."""
    COUNTS["versions"] += 1
    assert get_position(answer) == (version.kind, version.id, version.version, version.moment)
    assert make_exact(answer["entity"]) == make_exact(version.data)
    assert (answer["type"], answer["author"], answer["clientId"]) == (
        version.type,
        version.author,
        version.client,
    )
    assert answer.get("productInstanceId") == version.application
    previous = model.find_previous(version)
    assert answer["previousVersion"] == (
        values.ExactNumber(str(previous.version)) if previous else None
    )
    assert [int(number.text) for number in answer["missingVersions"]] == model.find_missing(version)
    if previous is None:
        assert (answer["diff"], answer["changes"]) == (None, [])
    else:
        assert answer["olderVersions"] is None
        check_difference(answer, previous.data, version.data)


def check_difference(answer: Answer, old: Value, new: Value) -> None:
    """Check that the patch of an answer turns `old` exactly into `new`.

    Also check that the path of each change leads to the value that the change has.
    """
    COUNTS["patches"] += 1
    assert make_exact(values.apply_patch(old, answer["diff"])) == make_exact(new)
    assert (answer["changes"] == []) == (old == new)
    for change in answer["changes"]:
        COUNTS["changes"] += 1
        _check_change(change, old, new)


def _check_change(change: Answer, old: Value, new: Value) -> None:
    kind, path, key_path = change["kind"], change["path"], values.parse_path(change["keyPath"])
    assert ("old" in change, "new" in change) == (kind != "added", kind != "removed")
    if kind == "removed":
        assert make_exact(find_at_pointer(path, old)) == make_exact(change["old"])
        return
    assert make_exact(find_at_pointer(path, new)) == make_exact(change["new"])
    assert [make_exact(value) for value in select(key_path, new)] == [make_exact(change["new"])]
    if kind == "changed":
        assert change["old"] != change["new"]
    if kind == "moved":
        assert path.endswith(f"/{change['toIndex']}")


def check_timeline(
    api: OracleApi,
    model: ReferenceStore,
    entity: tuple[str, str],
    filters: ReferenceFilters,
    **form: Any,
) -> None:
    """Check a filtered timeline, page by page."""
    COUNTS["timelines"] += 1
    pages = api.collect_pages(
        make_address(entity), "history", **make_parameters(filters), **form, include="diff"
    )
    expected = model.list_timeline(*entity, filters, form["sort"], form["order"])
    assert [get_position(answer) for answer in pages] == list_positions(expected)


def check_path_filter(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], path: Path, size: int
) -> None:
    """Check that a path filter selects the right versions of a document."""
    form = {"path": values.format_path(path), "pageSize": size, "include": "changes"}
    positions = {
        get_position(answer)
        for answer in api.collect_pages(make_address(entity), "history", **form)
    }
    for version in model.list_versions(*entity):
        COUNTS["path filters"] += 1
        (position,) = list_positions([version])
        previous = model.find_previous(version)
        assert previous is not None or position not in positions
        if previous is not None:
            least, at_most = _get_touch_bounds(path, previous.data, version.data)
            assert least <= (position in positions) <= at_most, (values.format_path(path), version)


def _get_touch_bounds(path: Path, old: Value, new: Value) -> tuple[bool, bool]:
    """Return whether a path filter must, and whether it is allowed to, select a change.

    The results can differ if the path ends with `[field=value]`, or if the pairing of list items
    decides which item a step names: see `_depends_on_pairing`. Then the filter must select the
    change if the values at the path differ, and is allowed to if the list of the item differs.

    Args:
        path: The path of the filter.
        old: The snapshot before the change.
        new: The snapshot after the change.
    """
    fixed = next(
        (n for n in range(len(path)) if _depends_on_pairing(path[: n + 1], old, new)), len(path)
    )
    if fixed == len(path) and not (path and path[-1].kind == "item"):
        differs = values.is_different(path, old, new)
        return differs, differs
    at_most = values.is_different(path[: min(fixed, len(path) - 1)], old, new)
    if any(step.kind == "any" for step in path):
        before, after = select(path, old), select(path, new)
        return any(value not in before for value in after) or len(before) != len(after), at_most
    return values.is_different(path, old, new), at_most


def _depends_on_pairing(path: Path, old: Value, new: Value) -> bool:
    """Return whether the item that the last step names depends on how list items are paired.

    The items of the old list are paired with the items of the new list. The last step depends on
    the pairs if it is an index or `*`, or if it names an item and a key of this item changed. If
    items are paired by the changed key, this item is new. If items are paired by an unchanged key,
    this item is an old item.
    """
    step = path[-1]
    if step.kind != "item":
        return step.kind == "any" or step.text.isdecimal()
    return any(
        values.get_item_key(was, key) != values.get_item_key(now, key)
        for was, now in zip(select(path, old), select(path, new), strict=False)
        for key in blame.KEYS
    )


def check_field_history(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], path: Path, size: int
) -> None:
    """Check the history of one field, in small pages and in one page."""
    COUNTS["fields"] += 1
    call, form = f"{make_address(entity)}/fields", {"path": values.format_path(path)}
    expected = model.list_field_values(*entity, path)
    for item in (500, size):
        pages = api.collect_pages(call, "values", **form, pageSize=item)
        COUNTS["field values"] += len(expected)
        assert [
            (
                make_exact(answer.get("value", ABSENT)),
                int(answer["version"].text),
                _get_until(answer),
            )
            for answer in pages
        ] == [(make_exact(value), origin.version, until) for value, origin, until in expected]
        for answer, (_, origin, _) in zip(pages, expected, strict=True):
            _check_origin(answer, origin, model)


def _get_until(answer: Answer) -> datetime | None:
    return datetime.fromisoformat(answer["until"]) if answer["until"] else None


def _check_origin(answer: Answer, version: StoredVersion, model: ReferenceStore) -> None:
    assert (int(answer["version"].text), datetime.fromisoformat(answer["updatedAt"])) == version.key
    assert (answer["author"], answer["clientId"], answer["type"]) == (
        version.author,
        version.client,
        version.type,
    )
    if model.find_previous(version):
        assert answer["exact"] == (not model.find_missing(version))


def check_blame(api: OracleApi, model: ReferenceStore, entity: tuple[str, str]) -> None:
    """Check that blame has the leaves of the reference, with the right values and last changes.

    The key path of a leaf must lead to the value of this leaf.
    """
    answer = api.get_data(f"{make_address(entity)}/blame")
    newest = model.find_newest(*entity)
    assert get_position(answer) == (*entity, *newest.key)
    expected = blame.list_leaves(model, *entity)
    assert [leaf["path"] for leaf in answer["blame"]] == [leaf.path for leaf in expected]
    for entry, leaf in zip(answer["blame"], expected, strict=True):
        COUNTS["blamed leaves"] += 1
        assert make_exact(entry["value"]) == make_exact(leaf.value)
        assert make_exact(select(values.parse_path(entry["keyPath"]), newest.data)) == [
            make_exact(leaf.value)
        ]
        origins = [
            origin for origin in leaf.origins if origin.version == int(entry["version"].text)
        ]
        assert origins, (entry, leaf)
        if len(leaf.origins) == 1:
            COUNTS["blamed leaves, certain"] += 1
            _check_origin(entry, origins[0], model)


def check_version_at(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], moment: datetime
) -> None:
    COUNTS["at"] += 1
    expected = model.find_at(*entity, moment)
    status, body = api.get_answer(f"{make_address(entity)}/at", time=moment)
    if expected is None:
        assert (status, body["status"]) == (404, "error")
    else:
        answer = body["data"]
        assert get_position(answer) == (*entity, *expected.key)
        assert make_exact(answer["entity"]) == make_exact(expected.data)
        assert answer["deleted"] == (expected.type == "DELETE")
        check_uncertain(answer, [expected], model)


def check_single_version(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], number: int
) -> None:
    COUNTS["single versions"] += 1
    versions = [version for version in model.list_versions(*entity) if version.version == number]
    status, body = api.get_answer(f"{make_address(entity)}/versions/{number}")
    if versions:
        check_version(body["data"], versions[-1], model)
    else:
        assert (status, body["status"]) == (404, "error")


def check_comparison(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], old: int, new: int
) -> None:
    COUNTS["compared"] += 1
    before, after = (
        [version for version in model.list_versions(*entity) if version.version == number][-1]
        for number in (old, new)
    )
    answer = api.get_data(f"{make_address(entity)}/compare", **{"from": old, "to": new})
    assert (get_position(answer["from"]), get_position(answer["to"])) == (
        *list_positions([before, after]),
    )
    check_difference(answer, before.data, after.data)


def check_application_timeline(
    api: OracleApi, model: ReferenceStore, id: str, filters: ReferenceFilters, **form: Any
) -> None:
    """Check the merged timeline of an application, page by page."""
    expected = model.list_application(id, filters, form["order"])
    if not model.list_application(id, ReferenceFilters(), "asc"):
        assert api.get_answer(f"applications/{id}/history")[0] == 404
        return
    COUNTS["merged timelines"] += 1
    pages = api.collect_pages(
        f"applications/{id}/history", "history", **make_parameters(filters), **form
    )
    assert [get_position(answer) for answer in pages] == list_positions(expected)
    for answer, version in zip(pages, expected, strict=True):
        check_version(answer, version, model)


def check_application_at(api: OracleApi, model: ReferenceStore, id: str, moment: datetime) -> None:
    COUNTS["applications at"] += 1
    expected = model.find_application_at(id, moment)
    status, body = api.get_answer(f"applications/{id}/at", time=moment)
    if not expected:
        assert (status, body["status"]) == (404, "error")
        return
    answer = body["data"]
    root = answer["application"]
    answers = [root] if root else []
    for kind in KINDS[1:]:
        answers += answer["children"][kind]
    alive = [version for version in expected if version.kind == ROOT or version.type != "DELETE"]
    assert [get_position(item) for item in answers] == list_positions(alive)
    deleted_children = [
        version for version in expected if version.kind != ROOT and version.type == "DELETE"
    ]
    assert [get_position(item) for item in answer["deleted"]] == list_positions(deleted_children)
    for item, version in zip(
        [*answers, *answer["deleted"]], [*alive, *deleted_children], strict=True
    ):
        assert make_exact(item["entity"]) == make_exact(version.data)
    check_uncertain(answer, [*alive, *deleted_children], model)


def check_uncertain(answer: Any, state: list[StoredVersion], model: ReferenceStore) -> None:
    """Check that an answer reports exactly the missing versions that can be current.

    Args:
        state: The versions that the answer gives as current.
    """
    lacking = [(version.kind, version.id, model.find_missing_after(version)) for version in state]
    entries = [
        (item["kind"], item["id"], [int(number.text) for number in item["missingVersions"]])
        for item in answer["uncertain"]
    ]
    assert entries == [item for item in lacking if item[2]]


def check_search(api: OracleApi, model: ReferenceStore, text: str, size: int) -> None:
    """Check the results of a search, in small pages and in one page."""
    COUNTS["searches"] += 1
    expected = model.search(text)
    for item in (500, size):
        pages = api.collect_pages("search", "results", q=text, pageSize=item)
        assert [(a["kind"], a["id"], datetime.fromisoformat(a["updatedAt"])) for a in pages] == [
            (result.kind, result.id, result.moment) for result in expected
        ]
        for answer, result in zip(pages, expected, strict=True):
            COUNTS["search results"] += 1
            assert answer["foundBy"] in (result.names or {"id"})
            assert {(d["kind"], d["id"]) for d in answer["foundIn"]} == result.carriers
            newest = result.newest
            assert answer["type"] == (newest.type if newest else None)
            assert answer["version"] == (
                values.ExactNumber(str(newest.version)) if newest else None
            )
            owner = (newest.application if newest else None) or result.id
            assert answer["productInstanceId"] == owner
