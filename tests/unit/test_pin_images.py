"""scripts/pin_images.py, with a registry that asks for a token as the public ones do."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = run_path(str(ROOT / "scripts" / "pin_images.py"))
MANIFESTS = {"/v2/library/base/manifests/3.11": b"{1}", "/v2/team/server/manifests/v1": b"{2}"}


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/token?"):
            assert self.path == "/token?service=us&scope=repository%3Aany%3Apull"
            return self.say(200, json.dumps({"token": "let me"}).encode())
        if self.headers["Authorization"] != "Bearer let me":
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            return self.say(
                401, b"", f'Bearer realm="{realm}",service="us",scope="repository:any:pull"'
            )
        assert "application/vnd.oci.image.index.v1+json" in self.headers["Accept"]
        found = MANIFESTS.get(self.path)
        return self.say(404 if found is None else 200, found or b"")

    def say(self, status: int, body: bytes, challenge: str = "") -> None:
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def folder(tmp_path: Path, registry: str) -> Path:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {registry}/library/base:3.11 AS build\nRUN true\nFROM {registry}/library/base:3.11\n"
    )
    (tmp_path / "compose.yaml").write_text(
        f"  a:\n    image: annals\n  b:\n    image: {registry}/team/server:v1\n    init: true\n"
    )
    return tmp_path


def test_every_image_gets_the_digest_of_its_manifest(folder: Path, registry: str) -> None:
    assert SCRIPT["main"](folder, ["--check"]) == 1
    assert "sha256" not in (folder / "Dockerfile").read_text()
    assert SCRIPT["main"](folder, []) == 0
    base, server = (hashlib.sha256(body).hexdigest() for body in MANIFESTS.values())
    assert (folder / "Dockerfile").read_text() == (
        f"FROM {registry}/library/base:3.11@sha256:{base} AS build\nRUN true\n"
        f"FROM {registry}/library/base:3.11@sha256:{base}\n"
    )
    assert (folder / "compose.yaml").read_text() == (
        "  a:\n    image: annals\n"
        f"  b:\n    image: {registry}/team/server:v1@sha256:{server}\n    init: true\n"
    )
    assert SCRIPT["main"](folder, ["--check"]) == 0


def test_a_tag_that_moved_is_found_and_pinned_again(folder: Path) -> None:
    SCRIPT["main"](folder, [])
    text = (folder / "compose.yaml").read_text()
    (folder / "compose.yaml").write_text(re.sub("@sha256:.{20}", "@sha256:" + 20 * "0", text))
    assert SCRIPT["main"](folder, ["--check"]) == 1
    assert SCRIPT["main"](folder, []) == 0
    assert (folder / "compose.yaml").read_text() == text


def test_without_a_registry_nothing_changes(
    folder: Path, registry: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "compose.yaml"
    path.write_text(path.read_text().replace("server:v1", "unknown:v1"))
    before = [(folder / name).read_text() for name in ("Dockerfile", "compose.yaml")]
    assert SCRIPT["main"](folder, []) == 2
    assert "unknown:v1: the registry gives no digest" in capsys.readouterr().out
    assert [(folder / name).read_text() for name in ("Dockerfile", "compose.yaml")] == before


def test_the_images_of_docker_are_found() -> None:
    texts = [(ROOT / "docker" / name).read_text() for name in ("Dockerfile", "compose.yaml")]
    found = {m["name"] for text in texts for m in SCRIPT["IMAGE"].finditer(text)}
    assert {"python", "postgres", "apache/kafka"} <= found
    assert SCRIPT["place"]("python") == ("registry-1.docker.io", "library/python")
    assert SCRIPT["place"]("apache/kafka") == ("registry-1.docker.io", "apache/kafka")
    assert SCRIPT["place"]("quay.io/team/server") == ("quay.io", "team/server")
