"""nginx with docker/nginx/nginx.conf as the proxy of a real web server of Annals.

The web server answers running requests before it ends.
"""

import http.client
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.embedded.postgres import EmbeddedPostgres
from tests.attack.web import (
    PROXY_SETTINGS,
    AttackAnswer,
    AttackedSite,
    AttackedWeb,
    close_connections,
)
from tests.consuming import wait_until
from tests.processes import create_own_database, server

__all__ = ["server"]

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = ROOT / "docker" / "nginx" / "nginx.conf"
COMPOSE = ROOT / "docker" / "compose.yaml"
GATEWAY = "172.31.250.1"
TLS_PROXY = "127.0.0.2"  # stands for the gateway
APPLICATION_ID = "behind-a-proxy"
PATH = f"/api/v1/history/product-instance/{APPLICATION_ID}"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def site(
    server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AttackedSite]:
    with create_own_database(server) as database:
        filled_site = AttackedSite(tmp_path_factory.mktemp("proxy"), database.url)
        filled_site.prepare_tables()
        filled_site.store_application(APPLICATION_ID, 100, 100, 640)
        yield filled_site


@pytest.fixture(scope="module")
def front(site: AttackedSite) -> Iterator[AttackedWeb]:
    gateway = {f"set_real_ip_from {GATEWAY};": f"set_real_ip_from {TLS_PROXY};"}
    with site.run_proxied(PROXY_SETTINGS, gateway) as web:
        yield web


def test_proxy_passes_answers_of_web_server_and_blocks_internal_paths(front: AttackedWeb) -> None:
    response = front.send_request(f"{PATH}?pageSize=1")
    assert response.status == 200
    assert response.headers["cache-control"] == "no-store"
    assert front.send_request(f"{PATH}?pageSize=1", method="HEAD").body == b""
    assert front.send_request("/nothing").status == 404
    long_address = f"{PATH}?path=/{'a' * 6000}"
    assert front.send_request(long_address).status == 200
    for closed_path in ("/metrics", "/readyz"):
        assert b"nginx" in front.send_request(closed_path).body


def test_proxy_logs_the_peer_address_and_not_a_forged_one(front: AttackedWeb) -> None:
    front.send_request(
        PATH, headers={"Authorization": "Basic bm9ib2R5Ong=", "X-Forwarded-For": "1.2.3.4"}
    )
    refused = "status=401"
    wait_until(lambda: refused in front.log.read_text(), "no line of the refused request")
    assert "address=127.0.0.1" in front.log.read_text()
    assert "1.2.3.4" not in front.log.read_text()


def test_proxy_logs_the_client_address_that_the_tls_proxy_forwards(front: AttackedWeb) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", front.port, 10, source_address=(TLS_PROXY, 0)
    )
    headers = {"Authorization": "Basic ZWxzZXdoZXJlOng=", "X-Forwarded-For": "1.2.3.5, 203.0.113.9"}
    connection.request("GET", PATH, headers=headers)
    assert connection.getresponse().status == 401
    connection.close()
    logged_address = "address=203.0.113.9"
    wait_until(lambda: logged_address in front.log.read_text(), "no line with the client's address")
    assert "1.2.3.5" not in front.log.read_text()


def test_proxy_of_compose_trusts_forwarded_headers_only_from_the_gateway() -> None:
    assert re.findall(r"set_real_ip_from (.*);", CONFIGURATION.read_text()) == [GATEWAY]
    assert f"gateway: {GATEWAY}" in COMPOSE.read_text()
    assert 'ports: ["127.0.0.1:8000:8080"]' in COMPOSE.read_text()


def test_proxy_limits_the_number_of_connections_from_one_address(front: AttackedWeb) -> None:
    with front.lock_table("product_instance_aud"):
        connections = [front.open_request(f"{PATH}?pageSize=1") for _ in range(50)]
        wait_until(lambda: front.send_request("/healthz").status == 429, "no limit of connections")
        close_connections(connections)
    wait_until(lambda: front.send_request("/healthz").status == 200, "the limit does not end")


OTHER_PATH = "/api/v1/history/product-instance/other"


@pytest.mark.parametrize(
    "name, value, path",
    [("SCRIPT_NAME", OTHER_PATH, f"{OTHER_PATH}{PATH}"), ("PATH_INFO", PATH, "/nothing")],
)
@pytest.mark.parametrize("proxy", [True, False])
def test_web_ignores_a_request_path_that_a_header_gives(
    name: str, value: str, path: str, proxy: bool, front: AttackedWeb
) -> None:
    """By default gunicorn takes the path from a header if the peer is on this machine. The access
    journal would then have a path that the client did not request."""
    target = front if proxy else front.behind
    assert target.send_request(path, headers={name: value}).status in (400, 404)


def test_web_answers_running_requests_before_it_ends_on_sigterm(site: AttackedSite) -> None:
    with site.run_web() as web:
        answers: list[AttackAnswer] = []
        with web.lock_table("product_instance_aud"):
            thread = threading.Thread(
                target=lambda: answers.append(web.send_request(PATH, timeout=120))
            )
            thread.start()
            wait_until(lambda: web.count_waiting() == 1, "the question does not wait")
            os.kill(web.pid, signal.SIGTERM)
            assert web.count_waiting() == 1
        thread.join()
        assert [answer.status for answer in answers] == [200]
