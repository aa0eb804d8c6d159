"""Business keys of distributed tables: found again by `annals search index`, and removed."""

import io
import json
from datetime import timedelta

import pytest
from django.core.management import call_command

from history.base import clock
from history.entities import BY_NAME, ROOT
from history.models import MaintainRun, SearchKey
from history.search_index.backfill import remove_old
from tests.citus.cluster import Citus
from tests.db.store import Store


@pytest.fixture(scope="module")
def filled(distributed: Citus) -> Citus:
    """Applications of which no key is known, more than one step brings."""
    store = Store()
    kind, pointer = ROOT.search[0]
    member = pointer.strip("/")
    for number in range(40):
        store.add(f"A{number}", 0, {member: f"{kind} {number}"}, clock.now())
    return distributed


def index(*words: str) -> dict[str, int]:
    out = io.StringIO()
    call_command("search", "index", "--json", *words, stdout=out)
    found: dict[str, int] = json.loads(out.getvalue().splitlines()[-1])
    return found


def test_keys_of_stored_versions_are_found_once(filled: Citus) -> None:
    SearchKey.objects.all().delete()
    assert index()["rows"] == 40
    assert SearchKey.objects.count() == 40
    assert index()["rows"] == 0
    assert index("--again")["rows"] == 40
    assert SearchKey.objects.count() == 40


def test_old_keys_are_removed(filled: Citus) -> None:
    today = clock.now().date()
    old = today - timedelta(days=100)
    for id in ("OLD1", "OLD2"):
        name = BY_NAME["product-task"].name
        SearchKey.objects.create(value=id, name="number", entity=name, id=id, day=old)
    MaintainRun.objects.all().delete()
    assert remove_old(filled.raw(), today - timedelta(days=90)) == 2
    assert not SearchKey.objects.filter(day__lt=today - timedelta(days=90)).exists()
