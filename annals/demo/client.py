"""A client with the logins of the demo: the API by HTTP Basic, the screens by the form."""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import requests

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
        self._session = requests.Session()

    def get(self, path: str, **parameters: str | int) -> Any:
        """The `data` of a successful API answer, numbers exact."""
        answer = requests.get(
            f"{self.address}/api/v1/{path}",
            parameters,
            auth=(self.login, self.password),
            timeout=TIMEOUT_S,
        )
        found: Any = exactjson.loads(_successful(answer).content)
        return found["data"]

    def timeline(self, entity: str, identifier: str, page_size: int) -> Iterator[dict[str, Any]]:
        """All versions of one entity, newest first, page by page."""
        more: dict[str, str] = {}
        path = f"history/{entity}/{quote(identifier, safe='')}"
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
        token = self._session.cookies[self._csrf_cookie] or ""
        form = {"username": self.login, "password": self.password, "next": path}
        return self.open("/admin/login/", {**form, "csrfmiddlewaretoken": token})

    def open(self, path: str, form: dict[str, str] | None = None) -> str:
        """The HTML at a path, as it is; with a form after it is sent."""
        method = "POST" if form else "GET"
        address = f"{self.address}{path}"
        return _successful(
            self._session.request(method, address, data=form, timeout=TIMEOUT_S)
        ).text


def _successful(answer: requests.Response) -> requests.Response:
    if not answer.ok:
        raise ClientError(f"{answer.url}: {answer.status_code} {answer.text[:500]}")
    return answer
