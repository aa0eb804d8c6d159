"""A client with the logins of the demo: the API by HTTP Basic, the screens by the form."""

import base64
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from typing import Any, Final

from history.documents import exactjson

TIMEOUT_S = 30

# What each may do, in words.
LOGINS: Final = {
    "support": "reads applications, sensitive fields masked",
    "auditor": "reads the same",
    "ops": "quarantine, ledger and completeness; no application",
    "underwriter": "reads applications whole",
    "privacy": "reads them masked, shows one value for a reason, reads the access journal",
    "admin": "reads them masked; quarantine, ledger, people, field labels, logins",
}


class ClientError(RuntimeError):
    """An answer that is not a success; the text has the URL, the status and the body."""


class Client:
    """One login at one address (`http://host:port`). Calls raise ClientError."""

    def __init__(
        self, address: str, login: str, password: str, csrf_cookie: str = "csrftoken"
    ) -> None:
        self.address, self.login, self.password = address, login, password
        self._csrf_cookie = csrf_cookie
        self._cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self._cookies)
        )

    def get(self, path: str, **parameters: str | int) -> Any:
        """The `data` of a successful API answer, numbers exact."""
        query = urllib.parse.urlencode(parameters)
        secret = base64.b64encode(f"{self.login}:{self.password}".encode()).decode()
        request = urllib.request.Request(  # noqa: S310 (our own address)
            f"{self.address}/api/v1/{path}?{query}", headers={"Authorization": f"Basic {secret}"}
        )
        answer: Any = exactjson.loads(self._read(request))
        return answer["data"]

    def timeline(self, entity: str, identifier: str, page_size: int) -> Iterator[dict[str, Any]]:
        """All versions of one entity, newest first, page by page."""
        more: dict[str, str] = {}
        path = f"history/{entity}/{urllib.parse.quote(identifier, safe='')}"
        while True:
            page = self.get(path, pageSize=page_size, **more)
            yield from page["history"]
            if "nextPageToken" not in page:
                return
            more = {"pageToken": page["nextPageToken"]}

    def screen(self, path: str) -> str:
        """The HTML of a screen, after logging in the first time."""
        page = self.open(path)
        if 'name="password"' not in page:
            return page
        token = next(cookie.value for cookie in self._cookies if cookie.name == self._csrf_cookie)
        form = {"username": self.login, "password": self.password, "next": path}
        return self.open("/admin/login/", {**form, "csrfmiddlewaretoken": token or ""})

    def open(self, path: str, form: dict[str, str] | None = None) -> str:
        """The HTML at a path, as it is; with a form after it is sent."""
        data = urllib.parse.urlencode(form).encode() if form else None
        return self._read(urllib.request.Request(self.address + path, data)).decode()  # noqa: S310

    def _read(self, request: urllib.request.Request) -> bytes:
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                body: bytes = response.read()
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise ClientError(f"{request.full_url}: {error.code} {said}") from None
        return body
