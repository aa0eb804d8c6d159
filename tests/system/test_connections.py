"""Requests as clients may use and misuse them, through the proxy; how a process ends."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from annals.embedded.postgres import Postgres
from tests.attack.web import Answer, Site, Web
from tests.consuming import until
from tests.processes import own_database, server

__all__ = ["server"]

ID = "connections"
PATH = f"/api/v1/history/product-instance/{ID}"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with own_database(server) as database:
        made = Site(tmp_path_factory.mktemp("connections"), database.url)
        made.prepare()
        made.store(ID, 100, 100, 640)
        yield made


@pytest.fixture(scope="module")
def web(site: Site) -> Iterator[Web]:
    with site.serve() as made:
        yield made


OTHER = "/api/v1/history/product-instance/other"


@pytest.mark.parametrize(
    "name, value, path",
    [("SCRIPT_NAME", OTHER, f"{OTHER}{PATH}"), ("PATH_INFO", PATH, "/nothing")],
)
@pytest.mark.parametrize("proxy", [True, False])
def test_no_header_is_the_address(name: str, value: str, path: str, proxy: bool, web: Web) -> None:
    """gunicorn takes these from a peer on this machine; the journal would then have another address
    than the one that was asked for."""
    asked = web if proxy else web.behind
    assert asked.get(path, headers={name: value}).status in (400, 404)


def test_at_the_end_of_a_process_what_has_arrived_is_answered(site: Site) -> None:
    with site.serve() as web:
        found: list[Answer] = []
        with web.locked("product_instance_aud"):
            asking = threading.Thread(target=lambda: found.append(web.get(PATH, timeout=30)))
            asking.start()
            until(lambda: web.waiting() == 1, "the question does not wait")
            os.kill(web.pid, signal.SIGTERM)
            assert web.waiting() == 1
        asking.join()
        assert [answer.status for answer in found] == [200]
