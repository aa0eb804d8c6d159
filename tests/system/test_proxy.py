"""docker/nginx/nginx.conf, run by nginx in front of the real web."""

from __future__ import annotations

import http.client
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded import process
from annals.embedded.postgres import Postgres
from tests import need
from tests.attack.web import PROXY, Site, Web, close, request, slowest, still_open
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
def front(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The proxy as a Web. Its waits are a second, so that the tests need not take long."""
    program = need.nginx()
    folder = tmp_path_factory.mktemp("proxy")
    with own_database(server) as database:
        site = Site(folder, database.url)
        site.prepare()
        site.store(ID, 100, 100, 640)
        with site.serve(**PROXY) as web:
            (port,) = process.free_ports([None])
            file = folder / "nginx.conf"
            file.write_text(
                CONFIGURATION.read_text()
                .replace("server web:8000;", f"server 127.0.0.1:{web.port};")
                .replace("listen 8080 default_server;", f"listen 127.0.0.1:{port};")
                .replace(f"set_real_ip_from {GATEWAY};", f"set_real_ip_from {TLS_PROXY};")
                .replace(" 10s;", " 1s;")
                .replace("/tmp/", f"{folder}/nginx-")  # noqa: S108 - what the container has
            )
            command = [program, "-c", str(file), "-g", "daemon off; master_process off;"]
            proxy = subprocess.Popen([*command, "-p", str(folder)])
            found = Web(port, web.log, database.url, proxy.pid)
            try:
                until(lambda: found.get("/healthz").status == 200, "the proxy does not answer")
                yield found
            finally:
                proxy.terminate()
                proxy.wait(20)


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


def test_clients_that_send_slowly_are_closed(front: Web) -> None:
    held = [front.connect() for _ in range(20)]
    for each in held:
        each.sendall(request(PATH)[:40])
    alive = slowest(lambda: front.get("/healthz", timeout=10), 1)
    until(lambda: still_open(held) == 0, "the proxy keeps clients that never finish a request")
    close(held)
    assert alive < 10


def test_answers_that_nobody_reads_are_closed(front: Web) -> None:
    held = [front.ask(f"{PATH}?pageSize=100", receive_buffer=4096) for _ in range(20)]
    assert slowest(lambda: front.get("/healthz", timeout=10), 3) < 10
    close(held)


def test_an_address_has_a_limit_of_connections(front: Web) -> None:
    with front.locked("product_instance_aud"):
        held = [front.ask(f"{PATH}?pageSize=1") for _ in range(50)]
        until(lambda: front.get("/healthz").status == 429, "no limit of connections")
        close(held)
    until(lambda: front.get("/healthz").status == 200, "the limit does not end")


def test_a_client_that_leaves_the_proxy_leaves_the_web(front: Web) -> None:
    with front.locked("product_instance_aud"):
        held = [front.ask(f"{PATH}?pageSize=1")]
        until(lambda: front.waiting() == 1, "the question does not wait")
        close(held)
        until(lambda: front.waiting() == 0, "the statement goes on")
