"""Compares the answers of every API call with the reference, over a few random histories.

`python -m tests.oracle --histories 500` runs the same with more histories.
"""

import ast
import inspect
import json
import os
from collections import Counter
from datetime import date, timedelta
from itertools import groupby
from operator import itemgetter
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from psycopg import sql

from history.kinds.entities import BY_NAME, ENTITIES, EntityKind
from history.retention.archive import provenance
from history.retention.archive.store import ArchiveStore as Files
from history.retention.archive.write import archive_day
from history.store import distribution
from history.store.blocks import dictionaries
from history.store.blocks import queries as stored_rows
from history.store.blocks.codec import BlockPacker, split_into_blocks
from history.store.blocks.dictionaries import Dictionary
from history.store.days import canonical, days, table_swap
from history.store.search_index.children import NewChildren, mark_complete, upsert_children
from history.store.search_index.keys import KeyFingerprint, NewSearchKeys
from history.store.search_index.upsert import upsert_keys
from history.store.versions import SourceRow, TimelineSubject
from history.timeline.fallback.client import OldServiceEndpoint
from tests.db.store import Store
from tests.oracle import blame, checks, reference, values
from tests.oracle.checks import COUNTS, OracleApi
from tests.oracle.histories import (
    APPLICATIONS,
    AUTHORS,
    CLIENTS,
    MOMENTS,
    GeneratedVersion,
    generate_batches,
    generate_histories,
    make_record,
)
from tests.oracle.reference import KINDS, TYPES, ReferenceFilters, ReferenceStore, StoredVersion
from tests.oracle.values import Path, PathStep, Value

HISTORIES = int(os.environ.get("ORACLE_HISTORIES", "8"))
SHRINK = "ORACLE_NO_SHRINK" not in os.environ  # shrinking a failure takes minutes
QUESTIONS = 4  # how often each call is repeated with other parameters


def make_days(store: Store) -> None:
    """Create all days that the histories use."""
    for entity in ENTITIES:
        for moment in MOMENTS:
            store.make_day(entity, moment)


def make_api(client: Client, monkeypatch: pytest.MonkeyPatch) -> OracleApi:
    """Return a client of the API, and limit how many versions the API reads at a time.

    So a page that is filtered by path needs several reads.
    """
    monkeypatch.setattr("history.timeline.budget.BATCH_VERSIONS", 3)
    monkeypatch.setattr("history.timeline.budget.SCAN_VERSIONS", 5)
    client.force_login(User.objects.get(username="auditor"))
    return OracleApi(client)


@pytest.fixture
def store(db: None) -> Store:
    """The tables, with a partition for each day that the histories use."""
    store = Store()
    make_days(store)
    return store


@pytest.fixture
def api(client: Client, db: None, monkeypatch: pytest.MonkeyPatch) -> OracleApi:
    return make_api(client, monkeypatch)


def store_versions(
    store: Store, history: list[GeneratedVersion], batches: list[list[GeneratedVersion]]
) -> ReferenceStore:
    """Store the versions, and return the reference for them.

    Args:
        batches: The versions as a consumer gets them. Their search keys are stored batch by batch.
    """
    for item in history:
        store.add(
            item.id,
            item.version,
            bytes(make_record(item).data).decode(),
            item.moment,
            entity=item.kind,
            type=item.type,  # type: ignore[arg-type]
            author=item.author,
            client=item.client,
            application=item.application,
        )
    fingerprints: dict[str, KeyFingerprint] = {}
    for batch in batches:
        keys = NewSearchKeys(fingerprints)
        for item in batch:
            keys.add_record(make_record(item))
        if found_keys := keys.list_rows():
            upsert_keys(connection.connection, found_keys)
        fingerprints |= keys.fingerprints
    if distribution.is_distributed(connection.connection):
        children = NewChildren()
        for item in history:
            children.add_record(make_record(item))
        upsert_children(connection.connection, children.list_rows())
    versions = []
    with connection.cursor() as cursor:
        for kind in KINDS:
            table = kind.replace("-", "_") + "_aud"
            owner = "NULL" if kind == KINDS[0] else "product_instance_id"
            cursor.execute(
                f"SELECT id, version, updated_at, type, author, client_id, {owner}, data::text"
                f" FROM {table} ORDER BY id, version, updated_at"
            )
            for id, version, moment, type, author, client, application, text in cursor.fetchall():
                data = values.parse_json(json.loads(text) if text.startswith('"') else text)
                versions.append(
                    StoredVersion(
                        kind, id, version, moment, TYPES[type], author, client, application, data
                    )
                )
    assert len(versions) == len(history)
    return ReferenceStore(versions)


def generate_paths(model: ReferenceStore, entity: tuple[str, str]) -> list[Path]:
    """Return the paths of values in the snapshots of a document.

    The empty path is left out, because the API refuses empty parameters.
    """
    paths: dict[Path, None] = {(PathStep("key", "docs"),): None}
    for version in model.list_versions(*entity):
        for path in _generate_paths(version.data, 4):
            paths.setdefault(path)
    return list(paths)


def _generate_paths(value: Value, levels: int) -> list[Path]:
    if not levels or not isinstance(value, dict | list):
        return []
    paths: list[Path] = []
    for steps, inner in _generate_steps(value):
        below = [(), *_generate_paths(inner, levels - 1)]
        paths += [(step, *path) for step in steps for path in below]
    return [*paths, (PathStep("any"),)]


def _generate_steps(value: Value) -> list[tuple[list[PathStep], Value]]:
    if isinstance(value, dict):
        return [([PathStep("key", key)], inner) for key, inner in value.items()]
    pairs = []
    for index, item in enumerate(value):
        steps = [PathStep("key", str(index)), PathStep("any")]
        for field in ("pid", "id", "s"):
            name = values.get_item_key(item, field)
            steps += [PathStep("item", name, field)] if name is not None else []
        pairs.append((steps, item))
    return pairs


FILTERS = st.builds(
    ReferenceFilters,
    since=st.sampled_from([None, None, *MOMENTS[1:4]]),
    until=st.sampled_from([None, None, *MOMENTS[4:]]),
    author=st.sampled_from([None, *AUTHORS]),
    client=st.sampled_from([None, *CLIENTS]),
    type=st.sampled_from([None, None, *TYPES]),
)
SIZES = st.integers(1, 4)
ORDERS = st.sampled_from(["desc", "asc"])
budget = settings(
    max_examples=HISTORIES,
    deadline=None,
    database=None,
    print_blob=True,
    phases=[Phase.generate, Phase.shrink] if SHRINK else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("module", [values, reference, blame, checks])
def test_reference_implementation_does_not_import_the_code_that_it_checks(
    module: ModuleType,
) -> None:
    tree = ast.parse(inspect.getsource(module))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    for node in imports:
        assert "history" not in ast.unparse(node)


@budget
@given(history=generate_histories(), data=st.data())
def test_answers_from_tables_equal_reference(
    store: Store, api: OracleApi, history: list[GeneratedVersion], data: st.DataObject
) -> None:
    compare_all(store, api, history, data)


@settings(budget, max_examples=max(4, HISTORIES // 4))
@given(history=generate_histories(), data=st.data())
def test_answers_from_packed_days_equal_reference(
    store: Store,
    api: OracleApi,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    history: list[GeneratedVersion],
    data: st.DataObject,
) -> None:
    """Most versions are in blocks, and late versions are plain rows. Then a day moves to the
    archive."""
    files = Files(str(tmp_path_factory.mktemp("archive")))
    new_settings = replace(django_settings.ANNALS, archive_url=files.place)
    monkeypatch.setattr(django_settings, "ANNALS", new_settings)
    compare_all(store, api, history, data, files=files)


LATE = st.sampled_from([False, False, False, True])
DICTIONARY = Dictionary(b'{"docs": [{"pid": "a", "id": "x"}], "clientId": "C1", "rate": 12345.10}')


def pack(draw: Any) -> None:
    """Put most versions of each document and day into blocks. Other versions stay plain rows."""
    plain = connection.connection
    dictionaries.store_dictionary(plain, ENTITIES[0].table, DICTIONARY)
    for entity, day in {(entity, moment.date()) for entity in ENTITIES for moment in MOMENTS}:
        table = days.locate_day(plain, entity.table, day).child
        rows = [row for row in canonical.stream_versions(plain, entity, table) if not draw(LATE)]
        packer = BlockPacker(draw(st.sampled_from([None, DICTIONARY])))
        texts = [(*row[:-1], row[-1].encode()) for row in rows]
        block_rows = [
            packer.pack_block(block)
            for _, of in groupby(texts, itemgetter(0))
            for block in split_into_blocks(list(of))
        ]
        for id, version, micros, *_ in rows:
            moment = stored_rows.EPOCH + timedelta(microseconds=micros)
            query = sql.SQL("DELETE FROM {} WHERE (id, version, updated_at) = (%s, %s, %s)")
            plain.execute(query.format(table), [id, version, moment])
        table_swap.write_rows(plain, entity, table, block_rows, frozen=False)
        COUNTS["blocks"] += len(block_rows)


@settings(budget, max_examples=max(5, HISTORIES // 4))
@given(history=generate_histories(), data=st.data())
def test_answers_from_tables_and_old_service_equal_reference(
    store: Store,
    api: OracleApi,
    monkeypatch: pytest.MonkeyPatch,
    history: list[GeneratedVersion],
    data: st.DataObject,
) -> None:
    """Some versions are in the tables, the others in the old service, some in both."""
    new_settings = replace(django_settings.ANNALS, fallback_url="http://old")
    monkeypatch.setattr(django_settings, "ANNALS", new_settings)
    with monkeypatch.context() as patched:
        compare_all(store, api, history, data, old=patched)


@settings(budget, max_examples=max(5, HISTORIES // 4))
@given(history=generate_histories(), data=st.data())
def test_timelines_from_tables_and_archive_equal_reference(
    store: Store,
    api: OracleApi,
    monkeypatch: pytest.MonkeyPatch,
    history: list[GeneratedVersion],
    data: st.DataObject,
) -> None:
    """Some versions are in the tables, the others in the archive, some in both."""
    new_settings = replace(django_settings.ANNALS, archive_url="/none")
    monkeypatch.setattr(django_settings, "ANNALS", new_settings)
    with monkeypatch.context() as patched, transaction.atomic():
        model = store_versions(store, history, data.draw(generate_batches(history)))
        some = [version for version in history if data.draw(st.booleans())]
        rows = [_make_row(version, old=False) for version in some]
        remove_most(some, data.draw)

        def read_versions(_store: Files, entity: EntityKind, id: str) -> list[SourceRow]:
            return [row for row in rows if (row.entity, row.id) == (entity, id)]

        patched.setattr("history.retention.archive.read.read_versions", read_versions)
        for entity in model.list_entities():
            _compare_timelines(api, model, entity, data.draw, archive="true")
        transaction.set_rollback(True)


def _make_row(version: GeneratedVersion, *, old: bool) -> SourceRow:
    return SourceRow(
        version.version,
        version.moment,
        version.type,
        version.client,
        version.author,
        version.application,
        _load_snapshot(version).encode(),
        version.id,
        BY_NAME[version.kind],
        old,
    )


def _load_snapshot(version: GeneratedVersion) -> str:
    """Return the snapshot with its keys in the order of JSONB, because blame depends on it."""
    table = sql.Identifier(BY_NAME[version.kind].table)
    query = sql.SQL("SELECT data::text FROM {} WHERE (id, version, updated_at) = (%s, %s, %s)")
    key = [version.id, version.version, version.moment]
    row = connection.connection.execute(query.format(table), key).fetchone()
    assert row is not None
    return str(json.loads(row[0]) if row[0].startswith('"') else row[0])


def remove_most(versions: list[GeneratedVersion], draw: Any) -> None:
    """Remove most of these versions from the tables."""
    for version in versions:
        if not draw(LATE):
            table = sql.Identifier(BY_NAME[version.kind].table)
            query = sql.SQL("DELETE FROM {} WHERE (id, version, updated_at) = (%s, %s, %s)")
            connection.connection.execute(
                query.format(table), [version.id, version.version, version.moment]
            )


def move_to_old_service(
    history: list[GeneratedVersion], draw: Any, patched: pytest.MonkeyPatch
) -> None:
    """Move some versions into the old service. A few of these versions also stay in the tables.

    Versions with a repeated number are not moved, because the old service has only one version of
    each number. Children that have belonged to two applications are not moved either, because the
    old service returns for an application only the versions that name this application.
    """
    times = Counter((version.kind, version.id, version.version) for version in history)
    once = [version for version in history if times[version.kind, version.id, version.version] == 1]
    moved = Counter(
        (kind, id)
        for kind, id, _ in {(version.kind, version.id, version.application) for version in history}
    )
    old_versions = [
        version for version in once if moved[version.kind, version.id] == 1 and draw(st.booleans())
    ]
    rows = [_make_row(version, old=True) for version in old_versions]
    remove_most(old_versions, draw)

    def fetch(
        _service: OldServiceEndpoint, subject: TimelineSubject, _seconds: float
    ) -> list[SourceRow]:
        documents = {
            (row.entity, row.id)
            for row in rows
            if (subject.kind is row.entity and subject.id == row.id)
            or (subject.kind is None and subject.id in (row.product_instance_id, row.id))
        }
        return [row for row in rows if (row.entity, row.id) in documents]

    patched.setattr("history.timeline.fallback.client.fetch_timeline", fetch)
    COUNTS["versions in the old service"] += len(rows)


def move_day_to_archive(files: Files, day: date) -> None:
    """Archive a day, and delete its rows from the tables."""
    plain = connection.connection
    for entity in ENTITIES:
        table = days.locate_day(plain, entity.table, day).child
        if stored_rows.count_versions(plain, table):
            provenance.note_archived_day(archive_day(plain, files, entity, day, table))
            plain.execute(sql.SQL("DELETE FROM {}").format(table))
            COUNTS["archived days"] += 1


def compare_all(
    store: Store,
    api: OracleApi,
    history: list[GeneratedVersion],
    data: st.DataObject,
    *,
    files: Files | None = None,
    old: pytest.MonkeyPatch | None = None,
) -> None:
    """Store a history, compare the answers of every call with the reference, and roll back.

    Args:
        files: An archive. If given, the days are packed first, and at the end one day is archived.
        old: If given, it patches the old service, and some versions are moved there.
    """
    with transaction.atomic():
        COUNTS["histories"] += 1
        model = store_versions(store, history, data.draw(generate_batches(history)))
        if distribution.is_distributed(connection.connection) and data.draw(st.booleans()):
            mark_complete(connection.connection)  # children are read from search_key
        if files:
            pack(data.draw)
        if old:
            move_to_old_service(history, data.draw, old)
        for entity in model.list_entities():
            _compare_entity(api, model, entity, data.draw)
        for id in APPLICATIONS:
            checks.check_application_timeline(
                api, model, id, ReferenceFilters(), pageSize=500, order="desc"
            )
            for _ in range(QUESTIONS):
                form = {"pageSize": data.draw(SIZES), "order": data.draw(ORDERS)}
                checks.check_application_timeline(api, model, id, data.draw(FILTERS), **form)
            for moment in MOMENTS:
                checks.check_application_at(api, model, id, moment)
        # The old service has no search.
        for text in () if old else ("A1", "C1", "77", " 77", "nobody", "A2"):
            checks.check_search(api, model, text, data.draw(SIZES))
        if files:
            move_day_to_archive(files, data.draw(st.sampled_from(MOMENTS)).date())
            for entity in model.list_entities():
                _compare_timelines(api, model, entity, data.draw, archive="true")
        transaction.set_rollback(True)


def _compare_timelines(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], draw: Any, **more: object
) -> None:
    whole = {"sort": "version", "order": "asc", "pageSize": 500, **more}
    for version, answer in zip(
        model.list_timeline(*entity, ReferenceFilters(), "version", "asc"),
        api.get_data(checks.make_address(entity), **whole)["history"],
        strict=True,
    ):
        checks.check_version(answer, version, model)
    for _ in range(QUESTIONS):
        form = {
            "sort": draw(st.sampled_from(["updatedAt", "version"])),
            "order": draw(ORDERS),
            "pageSize": draw(SIZES),
            **more,
        }
        checks.check_timeline(api, model, entity, draw(FILTERS), **form)


def _compare_entity(
    api: OracleApi, model: ReferenceStore, entity: tuple[str, str], draw: Any
) -> None:
    _compare_timelines(api, model, entity, draw)
    paths = st.sampled_from(generate_paths(model, entity))
    for path in draw(st.lists(paths, min_size=1, max_size=4 * QUESTIONS, unique=True)):
        checks.check_path_filter(api, model, entity, path, draw(SIZES))
        if not any(step.kind == "any" for step in path):
            checks.check_field_history(api, model, entity, path, draw(SIZES))
    checks.check_blame(api, model, entity)
    for moment in MOMENTS:
        checks.check_version_at(api, model, entity, moment)
    numbers = sorted({version.version for version in model.list_versions(*entity)})
    for number in range(numbers[-1] + 2):
        checks.check_single_version(api, model, entity, number)
    some = st.sampled_from(numbers)
    for _ in range(QUESTIONS):
        checks.check_comparison(api, model, entity, draw(some), draw(some))
