"""The old service as a real HTTP server, which answers as the contract says or in a hostile way."""

import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from history.documents.record import ChangeType
from history.kinds.entities import ROOT

# A function that replaces the answer of the contract, and writes to the connection itself.
Hostile = Callable[[BaseHTTPRequestHandler], None]
MOST_VERSIONS = 500


@dataclass(frozen=True)
class OldVersion:
    """A version that the old service has. `data` is JSON text."""

    id: str
    version: int
    moment: datetime
    data: str
    kind: str = ROOT.name
    type: str = "UPDATE"
    application: str | None = None
    author: str | None = "o.stara"
    client: str = "top-old"

    def to_json(self) -> str:
        row: dict[str, Any] = {
            "kind": self.kind,
            "id": self.id,
            "version": self.version,
            "type": self.type,
            "updatedAt": self.moment.isoformat(),
            "clientId": self.client,
            "author": self.author,
            "authorName": self.author,
            "previousVersion": None,
            "missingVersions": [],
        }
        if self.application is not None:
            row["productInstanceId"] = self.application
        return f'{json.dumps(row)[:-1]}, "entity": {self.data}}}'


@dataclass
class OldServiceServer:
    """A server on the loopback address that runs while it is used as a context.

    Attributes:
        page: The most versions on one page.
        certificate: A certificate with its key, to serve over TLS.
        requests: The addresses of all requests.
        tokens: The Authorization header of each request.
    """

    versions: list[OldVersion] = field(default_factory=list, repr=False)
    page: int = MOST_VERSIONS
    hostile: Hostile | None = None
    status: int = 200
    certificate: Path | None = None
    requests: list[str] = field(default_factory=list, repr=False)
    tokens: list[str | None] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        service = self

        class OldServiceHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.requests.append(self.path)
                service.tokens.append(self.headers.get("Authorization"))
                try:
                    if service.hostile is not None:
                        service.hostile(self)
                    else:
                        send_answer(self, *service.make_answer(self.path))
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Do not log requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), OldServiceHandler)
        self._server.daemon_threads = True
        if self.certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self.certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if self.certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def add_version(
        self, id: str, version: int, data: object, moment: datetime, **columns: Any
    ) -> None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        kind = ChangeType(int(version > 0)).name
        self.versions.append(OldVersion(id, version, moment, text, **{"type": kind, **columns}))

    def make_answer(self, path: str) -> tuple[int, str]:
        """Return the HTTP status and body with which the old service answers a GET of `path`."""
        parts = urlsplit(path)
        parameters = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        versions = self._select_versions(
            [unquote(version) for version in parts.path.split("/")[3:]]
        )
        if self.status != 200:
            return self.status, "{}"
        if not versions:
            error = {"code": "not_found", "message": "nothing", "requestId": "1"}
            return 404, json.dumps({"status": "error", "error": error})
        versions.sort(
            key=lambda version: (version.moment, version.kind, version.id, version.version),
            reverse=True,
        )
        start = int(parameters.get("pageToken", "v1:0").removeprefix("v1:"))
        size = min(int(parameters.get("pageSize", "50")), self.page)
        rows = ", ".join(version.to_json() for version in versions[start : start + size])
        next_page = (
            f', "nextPageToken": "v1:{start + size}"' if start + size < len(versions) else ""
        )
        return 200, f'{{"status": "success", "data": {{"history": [{rows}]{next_page}}}}}'

    def _select_versions(self, path: list[str]) -> list[OldVersion]:
        match path:
            case ["history", kind, id]:
                return [
                    version for version in self.versions if (version.kind, version.id) == (kind, id)
                ]
            case ["applications", id, "history"]:
                return [
                    version for version in self.versions if id in (version.application, version.id)
                ]
        return []

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def send_answer(
    handler: BaseHTTPRequestHandler, status: int, body: str | bytes, **headers: str
) -> None:
    """Send a whole answer."""
    content = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)
