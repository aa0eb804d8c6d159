"""The service that Annals replaces, as a real HTTP server: honest, or hostile in one way each."""

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

from history.entities import ROOT
from history.record import ChangeType

# Answers in the place of the honest one: it writes to the connection itself.
Hostile = Callable[[BaseHTTPRequestHandler], None]
MOST = 500


@dataclass(frozen=True)
class Held:
    """One version that the old service has. data: a JSON text."""

    id: str
    version: int
    at: datetime
    data: str
    kind: str = ROOT.name
    type: str = "UPDATE"
    application: str | None = None
    author: str | None = "o.stara"
    client: str = "top-old"

    def row(self) -> str:
        row: dict[str, Any] = {
            "kind": self.kind,
            "id": self.id,
            "version": self.version,
            "type": self.type,
            "updatedAt": self.at.isoformat(),
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
class OldService:
    """Serves on a port of the loopback address while it is used as a context. page: versions on one
    page at most. certificate: with its key, to serve over TLS. asked: the addresses of all
    requests; tokens: what they were authorized with."""

    held: list[Held] = field(default_factory=list, repr=False)
    page: int = MOST
    hostile: Hostile | None = None
    status: int = 200
    certificate: Path | None = None
    asked: list[str] = field(default_factory=list, repr=False)
    tokens: list[str | None] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append(self.path)
                service.tokens.append(self.headers.get("Authorization"))
                try:
                    if service.hostile is not None:
                        service.hostile(self)
                    else:
                        send(self, *service.answer(self.path))
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.certificate is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(self.certificate)
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if self.certificate else "http"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def add(self, id: str, version: int, data: object, at: datetime, **more: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        kind = ChangeType(int(version > 0)).name
        self.held.append(Held(id, version, at, text, **{"type": kind, **more}))

    def answer(self, path: str) -> tuple[int, str]:
        """What the contract says: status and body."""
        parts = urlsplit(path)
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        found = self._of([unquote(each) for each in parts.path.split("/")[3:]])
        if self.status != 200:
            return self.status, "{}"
        if not found:
            error = {"code": "not_found", "message": "nothing", "requestId": "1"}
            return 404, json.dumps({"status": "error", "error": error})
        found.sort(key=lambda each: (each.at, each.kind, each.id, each.version), reverse=True)
        start = int(given.get("pageToken", "v1:0").removeprefix("v1:"))
        size = min(int(given.get("pageSize", "50")), self.page)
        rows = ", ".join(each.row() for each in found[start : start + size])
        following = f', "nextPageToken": "v1:{start + size}"' if start + size < len(found) else ""
        return 200, f'{{"status": "success", "data": {{"history": [{rows}]{following}}}}}'

    def _of(self, path: list[str]) -> list[Held]:
        match path:
            case ["history", kind, id]:
                return [each for each in self.held if (each.kind, each.id) == (kind, id)]
            case ["applications", id, "history"]:
                return [each for each in self.held if id in (each.application, each.id)]
        return []

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: str | bytes, **headers: str) -> None:
    """A whole answer."""
    content = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(content)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(content)
