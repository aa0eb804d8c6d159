"""A client for the logins of the demo.

It uses HTTP Basic authentication for the API, and the login form for the screens.
"""

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import requests

from history.documents import exactjson

TIMEOUT_S = 30

# What each login may do. The demo prints these texts at its start.
LOGINS: Final = {
    "support": "reads applications, sensitive fields masked",
    "auditor": "reads the same",
    "ops": "quarantine, ledger and completeness; no application",
    "underwriter": "reads applications whole",
    "privacy": "reads them masked, shows one value for a reason, reads the access journal",
    "admin": "reads them masked; quarantine, ledger, people, field labels, logins",
}


class DemoClientError(RuntimeError):
    """Raised if a request fails. The message has the URL, the status and the body."""


class DemoClient:
    """A client for one login at one address (`http://host:port`).

    Every method raises DemoClientError if the answer is not a success.
    """

    def __init__(
        self, address: str, login: str, password: str, csrf_cookie: str = "csrftoken"
    ) -> None:
        self.address, self.login, self.password = address, login, password
        self._csrf_cookie = csrf_cookie
        self._session = requests.Session()

    def get_data(self, path: str, **parameters: str | int) -> Any:
        """Return the `data` of an API answer, with exact numbers."""
        answer = requests.get(
            f"{self.address}/api/v1/{path}",
            parameters,
            auth=(self.login, self.password),
            timeout=TIMEOUT_S,
        )
        content: Any = exactjson.loads(_require_success(answer).content)
        return content["data"]

    def iterate_timeline(
        self, entity: str, identifier: str, page_size: int
    ) -> Iterator[dict[str, Any]]:
        """Iterate over all versions of a document, the newest first, page by page."""
        next_page: dict[str, str] = {}
        path = f"history/{entity}/{quote(identifier, safe='')}"
        while True:
            page = self.get_data(path, pageSize=page_size, **next_page)
            yield from page["history"]
            if "nextPageToken" not in page:
                return
            next_page = {"pageToken": page["nextPageToken"]}

    def open_screen(self, path: str) -> str:
        """Return the HTML of a screen. Logs in first if that is necessary."""
        page = self.open_page(path)
        if 'name="password"' not in page:
            return page
        token = self._session.cookies[self._csrf_cookie] or ""
        form = {"username": self.login, "password": self.password, "next": path}
        return self.open_page("/admin/login/", {**form, "csrfmiddlewaretoken": token})

    def open_page(self, path: str, form: dict[str, str] | None = None) -> str:
        """Return the HTML at a path. If `form` is given, it is sent by POST."""
        method = "POST" if form else "GET"
        address = f"{self.address}{path}"
        return _require_success(
            self._session.request(method, address, data=form, timeout=TIMEOUT_S)
        ).text


def _require_success(answer: requests.Response) -> requests.Response:
    if not answer.ok:
        raise DemoClientError(f"{answer.url}: {answer.status_code} {answer.text[:500]}")
    return answer
