"""docker/nginx/nginx.conf, run by nginx in front of the real web; how a process of it ends."""

import http.client
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded.postgres import Postgres
from tests.attack.web import PROXY, Answer, Site, Web, close
from tests.consuming import until
from tests.processes import own_database, server

__all__ = ["server"]

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "docker" / "nginx" / "nginx.conf"
COMPOSE = ROOT / "docker" / "compose.yaml"
GATEWAY = "172.31.250.1"
TLS_PROXY = "127.0.0.2"  # in the place of the gateway
ID = "behind-a-proxy"
PATH = f"/api/v1/history/product-instance/{ID}"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with own_database(server) as database:
        made = Site(tmp_path_factory.mktemp("proxy"), database.url)
        made.prepare()
        made.store(ID, 100, 100, 640)
        yield made


@pytest.fixture(scope="module")
def front(site: Site) -> Iterator[Web]:
    gateway = {f"set_real_ip_from {GATEWAY};": f"set_real_ip_from {TLS_PROXY};"}
    with site.proxied(PROXY, gateway) as web:
        yield web


def test_answers_and_refusals_come_through(front: Web) -> None:
    answer = front.get(f"{PATH}?pageSize=1")
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert front.get(f"{PATH}?pageSize=1", method="HEAD").body == b""
    assert front.get("/nothing").status == 404
    long = f"{PATH}?path=/{'a' * 6000}"
    assert front.get(long).status == 200
    for closed in ("/metrics", "/readyz"):
        assert b"nginx" in front.get(closed).body


def test_a_client_does_not_choose_the_address_in_the_log(front: Web) -> None:
    front.get(PATH, headers={"Authorization": "Basic bm9ib2R5Ong=", "X-Forwarded-For": "1.2.3.4"})
    refused = "status=401"
    until(lambda: refused in front.log.read_text(), "no line of the refused request")
    assert "address=127.0.0.1" in front.log.read_text()
    assert "1.2.3.4" not in front.log.read_text()


def test_a_client_of_a_proxy_with_tls_has_its_own_address(front: Web) -> None:
    one = http.client.HTTPConnection("127.0.0.1", front.port, 10, source_address=(TLS_PROXY, 0))
    given = {"Authorization": "Basic ZWxzZXdoZXJlOng=", "X-Forwarded-For": "1.2.3.5, 203.0.113.9"}
    one.request("GET", PATH, headers=given)
    assert one.getresponse().status == 401
    one.close()
    given_address = "address=203.0.113.9"
    until(lambda: given_address in front.log.read_text(), "no line with the client's address")
    assert "1.2.3.5" not in front.log.read_text()


def test_only_the_gateway_of_compose_is_such_a_proxy() -> None:
    assert re.findall(r"set_real_ip_from (.*);", CONFIGURATION.read_text()) == [GATEWAY]
    assert f"gateway: {GATEWAY}" in COMPOSE.read_text()
    assert 'ports: ["127.0.0.1:8000:8080"]' in COMPOSE.read_text()


def test_an_address_has_a_limit_of_connections(front: Web) -> None:
    with front.locked("product_instance_aud"):
        held = [front.ask(f"{PATH}?pageSize=1") for _ in range(50)]
        until(lambda: front.get("/healthz").status == 429, "no limit of connections")
        close(held)
    until(lambda: front.get("/healthz").status == 200, "the limit does not end")


OTHER = "/api/v1/history/product-instance/other"


@pytest.mark.parametrize(
    "name, value, path",
    [("SCRIPT_NAME", OTHER, f"{OTHER}{PATH}"), ("PATH_INFO", PATH, "/nothing")],
)
@pytest.mark.parametrize("proxy", [True, False])
def test_no_header_is_the_address(
    name: str, value: str, path: str, proxy: bool, front: Web
) -> None:
    """gunicorn takes these from a peer on this machine; the journal would then have another address
    than the one that was asked for."""
    asked = front if proxy else front.behind
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
