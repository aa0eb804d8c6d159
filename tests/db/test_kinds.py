"""Kinds that an installation declares, from the message to the archive."""

import json
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.db.steps import run_steps
from tests.messages import NOW

ALONE = """
[[kind]]
name = "order"
title = { en = "Order", ru = "Заказ" }
topic = "shop.orders"
search = { number = "/number" }
list_keys = ["sku"]
created_at = "placedAt"
closed_at = "doneAt"

[[kind.label]]
path = "/total"
en = "Total amount"
kind = "money"

[[kind]]
name = "product"
title = "Product"
topic = "shop.products"

[[kind]]
name = "payment"
title = "Payment"
topic = "shop.public.payments"

[kind.envelope]
form = "debezium"
client = "shop"
"""
EXTENDED = """
extends = "default"

[[kind]]
name = "insurance-policy"
title = { en = "Insurance policy", ru = "Страховой полис" }
topic = "bank.policies"
migration_topic = "bank.policies.old"
parent = "loan"
search = { policy = "/policy" }
"""
OLD = NOW - timedelta(days=5)
DATABASE = "kinds"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield environment variables with a database for this module and a file of declared kinds.

    The kinds are `order`, `product` and `payment`. All of them stand alone.
    """
    url, tmp_path = os.environ["DATABASE_URL"], tmp_path_factory.mktemp("kinds")
    file = tmp_path / "alone.toml"
    file.write_text(ALONE, encoding="utf-8")
    file.with_name("extended.toml").write_text(EXTENDED, encoding="utf-8")
    file.with_name("turned.toml").write_text(
        ALONE.replace('"product"', '"product"\nmain = true').replace(
            '"order"', '"order"\nparent = "p"'
        ),
        encoding="utf-8",
    )
    with psycopg.connect(url, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        plain.execute(f"CREATE DATABASE {DATABASE}")
        yield {
            **os.environ,
            "DATABASE_URL": psycopg.conninfo.make_conninfo(url, dbname=DATABASE),
            "ANNALS_ENTITIES_FILE": str(file),
            "ANNALS_ARCHIVE_URL": str(tmp_path / "archive"),
            "ANNALS_ALLOWED_HOSTS": "testserver",
            "ANNALS_DEMO": "true",
            "ANNALS_RETENTION_DAYS": "8",
            "ANNALS_AHEAD_DAYS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        plain.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def make_version_message(id: str, number: int, data: Any, **more: Any) -> str:
    fields = {"id": id, "version": number, "type": "UPDATE" if number else "CREATE"}
    moment = (OLD + timedelta(minutes=number)).isoformat()
    return json.dumps(
        {**fields, "updatedAt": moment, "clientId": "shop", "author": "a.lee", **more, "data": data}
    )


PAGES = ("gaps page", "field page", "version page", "client page")


def make_order_message(number: int, **more: Any) -> str:
    items = [{"sku": "b", "n": number}, {"sku": "a", "n": 1}][:: -1 if number % 2 else 1]
    data = {"number": "N-1", "total": f"{number}.50", "placedAt": "2026-11-01", "items": items}
    return make_version_message("O1", number, data, **more)


def test_kind_that_stands_alone_works_from_message_to_archive(env: dict[str, str]) -> None:
    timeline = "/api/v1/history/order/O1"
    (migrated, complete, granted, maintained, ready, stored, bad, rows), answers = (
        _check_first_versions(env, timeline)
    )
    assert migrated[0] == complete[0] == granted[0] == maintained[0] == 0, (
        migrated,
        complete,
        granted,
        maintained,
    )
    assert "Made the table order_aud (order)" in migrated[1]
    assert ready == [
        200,
        {
            "status": "ok",
            "process": "web",
            "checks": dict.fromkeys(("database", "rights", "migrations", "partitions"), "ok"),
        },
    ]
    assert stored == {"read": 4, "stored": 3, "repeated": 0, "expired": 0, "quarantined": 1}
    assert bad["quarantined"] == 1
    # The tombstone after the deletion adds no version.
    assert rows == {"read": 4, "stored": 3, "repeated": 1, "expired": 0, "quarantined": 0}
    paid = answers["payment"][1]["data"]["history"]
    assert [(item["version"], item["type"]) for item in paid] == [
        (2, "DELETE"),
        (1, "UPDATE"),
        (0, "CREATE"),
    ]
    assert paid[1]["entity"] == {"id": 17, "version": 1, "sum": "12.50"}
    history = answers["timeline"][1]["data"]["history"]
    assert [item["version"] for item in history] == [3, 1, 0]
    assert history[0]["missingVersions"] == [2]
    assert "productInstanceId" not in history[0]
    assert (history[0]["createdAt"], history[0]["closedAt"]) == ("2026-11-01", None)
    # Items of lists are matched by their sku, and the field has its declared label.
    changes = {item["keyPath"]: item["label"] for item in history[1]["changes"]}
    assert changes.keys() == {"/items/[sku=b]", "/items/[sku=b]/n", "/total"}
    assert changes["/total"] == "Total amount"
    [hit] = answers["search"][1]["data"]["results"]
    assert (hit["kind"], hit["id"], hit["foundBy"]) == ("order", "O1", "number")
    assert "productInstanceId" not in hit
    for name in ("applications", "application at"):
        status, answer = answers[name]
        assert (status, answer["error"]["code"]) == (404, "unknown_address")
    assert answers["schema"][0] == 200
    document = json.dumps(answers["schema"][1])
    assert '"order"' in document
    assert "product-instance" not in document
    assert "applications/{productInstanceId}" not in document
    for name in ("page", "search page", "home", "state", *PAGES):
        status, text = answers[name]
        assert status == 200, (name, text)
        assert "pplication" not in _read_visible_text(text), (name, _read_visible_text(text))
    gaps = json.loads(answers["gaps"][1])
    assert [(item["entity"], item["gaps"]) for item in gaps["by"]] == [("order", 1)]
    assert answers["completeness"][0] == 200
    assert '"stored"' in json.dumps(answers["trace"][1]), answers["trace"]
    for name in ("export", "capacity", "search index"):
        assert answers[name][0] == 0, (name, answers[name])
    _archive_and_restore(env, timeline)


def make_payment_message(op: str, number: int) -> str:
    """Return the message that Debezium sends for a change of a row."""
    row = {"id": 17, "version": number, "sum": "12.50"}
    source = {"name": "shop", "ts_ms": int((OLD + timedelta(minutes=number)).timestamp() * 1000)}
    side = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({"schema": {}, "payload": {**side, "op": op, "source": source}})


def _read_visible_text(page: str) -> str:
    """Return the text of a page without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def _check_first_versions(env: dict[str, str], timeline: str) -> tuple[list[Any], dict[str, Any]]:
    exported = env["ANNALS_ARCHIVE_URL"] + "-x"
    calls = {
        "timeline": ["api", timeline],
        "payment": ["api", "/api/v1/history/payment/17"],
        "search": ["api", "/api/v1/search?q=N-1"],
        "applications": ["api", "/api/v1/applications/A1/history"],
        "application at": ["api", "/api/v1/applications/A1/at?time=2026-01-01"],
        "schema": ["api", "/api/schema/?format=json"],
        "page": ["page", "/admin/history/order/O1/"],
        "state": ["page", "/admin/history/order/O1/state/"],
        "field page": ["page", "/admin/history/order/O1/field/?path=/total"],
        "version page": ["page", "/admin/history/order/O1/versions/1/"],
        "client page": ["page", "/admin/client/?q=nobody"],
        "search page": ["page", "/admin/history/?q=N-1+P1"],
        "gaps page": ["page", "/admin/gaps/"],
        "home": ["page", "/admin/"],
        "gaps": ["command", "gaps", "--json"],
        "completeness": ["api", "/api/v1/completeness"],
        "export": ["command", "export", "--entity", "order", "--output", exported],
        "capacity": ["command", "capacity", "--rps", "10"],
        "trace": ["api", "/api/v1/trace?entity=order&id=O1&version=1"],
        "search index": ["command", "search", "index"],
    }
    results = run_steps(
        env,
        ["command", "migrate"],
        ["command", "makemigrations", "--check", "--dry-run"],
        ["command", "grants", "--apply"],
        ["command", "partitions", "maintain"],
        ["api", "/readyz"],
        [
            "ingest",
            "shop.orders",
            make_order_message(0),
            make_order_message(1),
            make_order_message(3),
            make_version_message("O1", -1, {}),
        ],
        ["ingest", "shop.products", make_version_message("P1", 0, {"name": "Tea"}), "no JSON"],
        [
            "ingest",
            "shop.public.payments",
            make_payment_message("c", 0),
            make_payment_message("u", 1),
            make_payment_message("d", 1),
            None,
        ],
        *calls.values(),
    )
    return results[: -len(calls)], dict(zip(calls, results[-len(calls) :], strict=True))


def _archive_and_restore(env: dict[str, str], timeline: str) -> None:
    day = f"{OLD:%Y-%m-%d}"
    results = run_steps(
        env | {"ANNALS_RETENTION_DAYS": "3"},
        ["command", "migrate", "-v", "1"],
        ["command", "quarantine", "discard", "--why", "wrong on purpose", "--reason", "bad_field"],
        ["command", "partitions", "maintain", "--force"],
        ["command", "partitions", "verify", "--archive"],
        ["command", "partitions", "list", "--json"],
        ["command", "partitions", "restore", "--entity", "order", day],
        ["api", timeline],
    )
    codes = [item[0] for item in results]
    assert codes == [0, 0, 0, 0, 0, 0, 200], results[2]
    assert "Made the table" not in results[0][1]
    assert f"order_aud_{OLD:%Y%m%d}" not in results[4][1]
    assert [item["version"] for item in results[-1][1]["data"]["history"]] == [3, 1, 0]


COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, attcompression, attstorage
FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attname
"""
INDEXES = """
SELECT replace(pg_get_indexdef(indexrelid), '{name}', 'NAME') FROM pg_index
WHERE indrelid = '{table}'::regclass ORDER BY 1
"""
CONSTRAINTS = """
SELECT replace(conname, '{name}', 'NAME'), contype, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = '{table}'::regclass ORDER BY 1
"""
PARTITIONED = """
SELECT pg_get_partkeydef(oid), relowner::regrole::text, relacl::text, reloptions::text
FROM pg_class WHERE oid = '{table}'::regclass
"""


def test_declared_child_kind_works_like_a_kind_that_annals_ships(env: dict[str, str]) -> None:
    """The table of the kind has the same columns, indexes and constraints as the table of a shipped
    kind."""
    path = env["ANNALS_ENTITIES_FILE"].replace("alone", "extended")
    extended = env | {"ANNALS_ENTITIES_FILE": path}
    run_steps(env, ["command", "migrate"])
    before, refused, warned, migrated, granted, maintained, ready, *later_results = run_steps(
        extended,
        ["api", "/readyz"],
        ["api", "/api/v1/history/insurance-policy/I1"],
        ["command", "check", "--database", "default"],
        ["command", "migrate"],
        ["command", "grants", "--apply"],
        ["command", "partitions", "maintain"],
        ["api", "/readyz"],
        ["command", "makemigrations", "--check", "--dry-run"],
        [
            "ingest",
            "bank.policies",
            make_version_message("I1", 0, {"policy": "77"}, loan="A1"),
            make_version_message("I2", 0, {"policy": "78"}),
        ],
        [
            "ingest",
            "bank.policies.old",
            make_version_message("I1", 1, {"policy": "77"}, loan="A1"),
            make_version_message("I1", 0, {"policy": "77"}, loan="A1"),
        ],
        [
            "ingest",
            "top-storage.export.product-instance",
            make_version_message("A1", 0, {"rate": "17"}),
        ],
        ["api", "/api/v1/applications/A1/history"],
        ["api", "/api/v1/search?q=77"],
        ["page", "/admin/applications/A1/"],
        ["sql", "SELECT reason, detail FROM ingest_quarantine WHERE topic = 'bank.policies'"],
        *(
            ["sql", text.format(table=f"{name}_aud", name=name)]
            for text in (COLUMNS, INDEXES, CONSTRAINTS, PARTITIONED)
            for name in ("insurance_policy", "participant_role")
        ),
    )
    complete, first, twin, _main, whole, search_answer, page, bad, *catalogue = later_results
    checks = before[1]["checks"]
    assert before == [503, {"status": "unavailable", "process": "web", "checks": checks}]
    assert checks["migrations"] == "a declared kind has no table, or a table with other columns"
    assert (refused[0], refused[1]["error"]["code"]) == (503, "unavailable")
    for table in ("order_aud", "product_aud"):
        warning = f"(history.W001) The kind of the table {table} is not declared"
        assert warning in warned[1]
    assert migrated[0] == granted[0] == maintained[0] == complete[0] == 0
    assert ready[0] == 200
    assert (first["stored"], first["quarantined"]) == (1, 1)
    assert (twin["stored"], twin["repeated"]) == (1, 1)
    [[reason, detail]] = bad
    assert reason == "no_product_instance_id"
    assert detail.startswith("`loan` is missing or empty")
    parts = sorted((item["kind"], item["version"]) for item in whole[1]["data"]["history"])
    assert parts == [("insurance-policy", 0), ("insurance-policy", 1), ("product-instance", 0)]
    [hit] = search_answer[1]["data"]["results"]
    assert (hit["kind"], hit["id"], hit["productInstanceId"]) == ("product-instance", "A1", "A1")
    assert "Insurance policy" in page[1]
    for declared, shipped in zip(catalogue[::2], catalogue[1::2], strict=True):
        assert declared == shipped
        assert declared


OTHERS = """
CREATE TABLE "Invoice_aud" (id bigint, revision int, at date) PARTITION BY RANGE (at);
CREATE TABLE invoice_aud (id bigint, data jsonb NOT NULL, at date) PARTITION BY RANGE (at);
CREATE TABLE customer_aud (id bigint NOT NULL, at date) PARTITION BY LIST (at)
"""


def test_migrate_does_not_change_tables_of_other_django_applications(env: dict[str, str]) -> None:
    """The names of these tables also end in `_aud`. The checks do not mention them."""
    tables = ['"Invoice_aud"', "invoice_aud", "customer_aud"]
    columns = [["sql", COLUMNS.format(table=table)] for table in tables]
    with psycopg.connect(env["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(OTHERS)
    results = run_steps(
        env,
        *columns,
        ["command", "migrate"],
        *columns,
        ["command", "check", "--database", "default"],
    )
    before, (code, output), after, check = results[:3], results[3], results[4:7], results[7]
    with psycopg.connect(env["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP TABLE {', '.join(tables)}")
    assert code == 0, output
    assert before == after
    assert not re.search("invoice_aud|customer_aud", check[1], re.IGNORECASE)


def test_field_marked_in_kinds_file_is_masked_even_when_label_says_otherwise(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The field is masked before `migrate`, and after a labels file said that it is not
    sensitive."""
    file, load = tmp_path / "kinds.toml", tmp_path / "labels.json"
    file.write_text(ALONE.replace('kind = "money"', "sensitive = true"), encoding="utf-8")
    load.write_text(
        '[{"entity": "order", "path": "/total", "russian": "x", "sensitive": false}]',
        encoding="utf-8",
    )
    ask = ["api", "/api/v1/history/order/O2"]
    *_, (_, clear) = run_steps(
        env,
        ["command", "migrate"],
        ["command", "partitions", "maintain"],
        ["ingest", "shop.orders", make_order_message(0).replace("O1", "O2")],
        ask,
    )
    marked = {**env, "ANNALS_ENTITIES_FILE": str(file)}
    (_, before), loaded, (_, after) = run_steps(
        marked, ask, ["command", "labels", "load", str(load)], ask
    )
    assert loaded[0] == 0
    totals = [item["data"]["history"][0]["entity"]["total"] for item in (clear, before, after)]
    assert totals[0] == "0.50"
    assert totals[1] == totals[2]
    assert totals[1].startswith("masked:")


def test_missing_parent_column_is_reported_when_kind_became_a_child(
    env: dict[str, str],
) -> None:
    path = env["ANNALS_ENTITIES_FILE"]
    run_steps(env, ["command", "migrate"])
    turned = env | {
        "ANNALS_ENTITIES_FILE": path.replace("alone", "turned"),
        "ANNALS_DEMO": "false",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    consumed, checked = run_steps(
        turned,
        ["command", "consume", "--until-idle", "1"],
        ["command", "check", "--deploy", "--database", "default"],
    )
    sentence = "The table order_aud has no column for the parent, but the kind order declares one."
    assert consumed[0] == 1
    assert sentence in consumed[1]
    assert checked[0] == 0
    assert f"(annals.W111) {sentence}" in checked[1]
