"""docs/structure.md: the way of a timeline request is what it says."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from tests.called_files import called_files, documented
from tests.db.store import Store


def test_a_timeline_request_goes_this_way(store: Store, client: Client) -> None:
    for version in range(3):
        store.add("A1", version, {"rate": str(version)}, version)
    client.force_login(User.objects.get(username="support"))
    client.get("/healthz")  # The middleware is built by the first request, last one first.
    with called_files() as found:
        answer = client.get("/api/v1/history/product-instance/A1")
    assert answer.status_code == 200
    files = documented("The way of a timeline request")
    assert len(files) >= 10
    assert [file for file in found if file in files] == files
