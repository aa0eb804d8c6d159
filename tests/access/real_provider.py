"""A certified OpenID provider (oidc-provider, from npm) as a process, and a person who logs in."""

import html
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.cookiejar import Cookie
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urljoin, urlsplit

import requests
from requests.cookies import RequestsCookieJar

from annals.embedded import process
from history.common import private_files
from tests import npm

HERE = Path(__file__).parent / "provider"
SCOPE = "topst-product-maintenance-changelog"
SECRET = "a secret of the tests"
AUDIENCE = "urn:annals:api"


def install_provider() -> Path:
    """Return the folder with the npm modules of the provider; install them if needed."""
    return npm.install_packages(HERE, "oidc-provider")


def choose_port() -> int:
    """Return a free port that the system does not use for outgoing connections."""
    [port] = process.choose_free_ports([None])
    return port


@dataclass
class DeclaredProvider:
    """The address of an identity provider on this machine, and how Annals must be configured."""

    name: str
    home: Path
    web: str  # the address of Annals
    port: int = field(default_factory=choose_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def issuer(self) -> str:
        return self.url

    def make_declaration(self, roles: Mapping[str, str]) -> dict[str, object]:
        """Return the entry of this provider for the file that ANNALS_OIDC_FILE names."""
        secret = self.home / f"{self.name}.secret"
        private_files.write_private_file(secret, SECRET)
        return {
            "name": self.name,
            "title": f"Provider {self.name}",
            "issuer": self.issuer,
            "client_id": "annals",
            "client_secret_file": str(secret),
            "audiences": [AUDIENCE],
            "roles": dict(roles),
        }


class RealProvider(DeclaredProvider):
    """An oidc-provider process, which runs until the end of the `with` block.

    It reads the accounts from a file in `home` whenever it needs them.
    """

    def make_declaration(self, roles: Mapping[str, str]) -> dict[str, object]:
        return super().make_declaration(roles) | {"login_scopes": ["openid", "profile"]}

    def write_account(self, subject: str, **claims: object) -> None:
        """Create the account of a subject with these claims, or replace it."""
        file = self.home / f"{self.name}.accounts.json"
        accounts = json.loads(file.read_text()) if file.exists() else {}
        file.write_text(json.dumps(accounts | {subject: claims}))

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Start the process, with new keys, and return when it accepts requests."""
        modules = install_provider()
        accounts = self.home / f"{self.name}.accounts.json"
        if not accounts.exists():
            accounts.write_text("{}")
        settings = self.home / f"{self.name}.settings.json"
        base = f"{self.web}/oidc/{self.name}"
        settings.write_text(
            json.dumps(
                {
                    "port": self.port,
                    "accounts": str(accounts),
                    "scope": SCOPE,
                    "audience": AUDIENCE,
                    "client": {
                        "id": "annals",
                        "secret": SECRET,
                        "redirect": f"{base}/callback/",
                        "ended": f"{base}/logout/",
                    },
                }
            )
        )
        self._process = subprocess.Popen(
            ["node", str(HERE / "server.mjs"), str(settings), str(modules)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "NODE_NO_WARNINGS": "1"},
        )
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line.strip() == "ready":
                return
        raise AssertionError("".join(lines))

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def fill_in_form(self, page: str, subject: str) -> dict[str, str]:
        """Return the fields of a form of the provider, with the values that `subject` enters."""
        prompt = re.search(r'name="prompt" value="(\w+)"', page)
        return {"prompt": prompt[1] if prompt else "login", "login": subject, "password": "x"}


class LoginProvider(Protocol):
    """A provider at which a person can log in."""

    name: str

    @property
    def url(self) -> str: ...

    def fill_in_form(self, page: str, subject: str) -> dict[str, str]:
        """Return the fields of a form of the provider, with the values that `subject` enters."""


class _Cookies(RequestsCookieJar):
    """A cookie jar that sends Secure cookies to http://127.0.0.1, too, although it is not HTTPS.

    Browsers also do this, and Keycloak relies on this behaviour.
    """

    def set_cookie(self, cookie: Cookie, *args: Any, **more: Any) -> Any:
        cookie.secure = False
        return super().set_cookie(cookie, *args, **more)


class ProviderUser:
    """A person with a browser, who follows redirects and fills in the provider's forms."""

    page: requests.Response  # where the last login ended

    def __init__(self) -> None:
        self.http = requests.Session()
        self.http.cookies = _Cookies()

    def get(self, address: str) -> requests.Response:
        return self.http.get(address, timeout=120)

    def log_in(self, web: str, provider: LoginProvider, subject: str) -> requests.Response:
        """Log in at the provider, and return the page on which the login ends."""
        answer = self.get(f"{web}/oidc/{provider.name}/login/?next=/admin/")
        return self.continue_login(answer, provider, subject)

    def continue_login(
        self, answer: requests.Response, provider: LoginProvider, subject: str
    ) -> requests.Response:
        """Continue a login from a page of the provider, and return the page on which it ends."""
        for _ in range(4):
            if urlsplit(answer.url).netloc != urlsplit(provider.url).netloc:
                break
            form = re.search(r'<form[^>]*action="([^"]+)"', answer.text)
            if form is None:
                break
            address = urljoin(answer.url, html.unescape(form[1]))
            data = provider.fill_in_form(answer.text, subject)
            answer = self.http.post(address, data=data, timeout=120)
        self.page = answer
        return answer

    def log_out(self, web: str) -> requests.Response:
        """Press the logout button of the screens, and return the answer."""
        page = self.get(f"{web}/admin/").text
        field = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        data = {"csrfmiddlewaretoken": field}
        return self.http.post(f"{web}/admin/logout/", data=data, timeout=120)
