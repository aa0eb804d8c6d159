"""A Keycloak process with an in-memory database and the realm that docs/access.md describes."""

import hashlib
import os
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import requests

from history.common import private_files
from tests import required_programs
from tests.access.real_provider import AUDIENCE, SCOPE, SECRET, DeclaredProvider
from tests.consuming import wait_until

VERSION: Final = "26.4.7"
ARTIFACT: Final = f"org.keycloak:keycloak-quarkus-dist:{VERSION}:zip"
SHA256: Final = "dd9834c023460be856f731423d86228c23b5d002194a2064642bec0cc6573eaa"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
ADMIN: Final = "admin"
PASSWORD: Final = "a password of the tests"
JAVA: Final = {
    "JAVA_OPTS_KC_HEAP": "-Xms256m -Xmx512m",
    # Only the first compiler of the JVM: the second one would take half of the start time.
    "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
    "KC_BOOTSTRAP_ADMIN_USERNAME": ADMIN,
    "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD,
}


def get_cache_folder() -> Path:
    """Return the folder of this version of Keycloak, next to the cached jars of Apache Kafka."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "annals" / f"keycloak-{VERSION}"


def install_keycloak() -> Path:
    """Return the folder of Keycloak; the first call fetches it with Maven, checks its hash and
    builds it."""
    required_programs.need_java()
    home = get_cache_folder()
    if not home.exists():
        required_programs.need_program("mvn", "maven")
    home.parent.mkdir(parents=True, exist_ok=True)
    with private_files.hold_file_lock(home.with_name("keycloak.lock")):
        if not home.exists():
            _install(home)
    return home


def _install(home: Path) -> None:
    draft = home.with_name(home.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    options = [f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={draft}"]
    _run("mvn", "--batch-mode", "--quiet", COPY, *options)
    [packed] = draft.glob("*.zip")
    assert hashlib.sha256(packed.read_bytes()).hexdigest() == SHA256, (
        f"{packed} does not have the SHA-256 of Keycloak {VERSION}"
    )
    with zipfile.ZipFile(packed) as file:
        file.extractall(draft)
    packed.unlink()
    unpacked = draft / f"keycloak-{VERSION}"
    _run("sh", str(unpacked / "bin" / "kc.sh"), "build", "--db=dev-mem")
    unpacked.rename(home)
    shutil.rmtree(draft)


def _run(*command: str) -> None:
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


class Keycloak(DeclaredProvider):
    """A Keycloak server, which runs until the end of the `with` block."""

    @property
    def issuer(self) -> str:
        return f"{self.url}/realms/staff"

    def make_declaration(self, roles: Mapping[str, str]) -> dict[str, object]:
        options = super().make_declaration(roles)
        return options | {"title": "Keycloak", "programs": ["audit-system"]}

    def __enter__(self) -> Self:
        log = self.home / "keycloak.log"
        program = install_keycloak() / "bin" / "kc.sh"
        options = [f"--http-port={self.port}", "--http-host=127.0.0.1", "--http-enabled=true"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    "sh",
                    program,
                    "start",
                    "--optimized",
                    "--hostname-strict=false",
                    *options,
                    "--cache=local",
                ],
                env=os.environ | JAVA,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(lambda: "Listening on:" in log.read_text(), log.read_text, 120)
        self._create_realm()
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _create_realm(self) -> None:
        """Create the realm `staff` with groups, people, Annals as a client, and a program."""
        groups = [{"name": group_name} for group_name in ("support", "admins", "other")]
        self.call_admin_api(
            "POST",
            "",
            json={
                "realm": "staff",
                "enabled": True,
                "groups": [{"name": "annals", "subGroups": groups}],
            },
        )
        realm = "/staff"
        self.call_admin_api(
            "POST",
            f"{realm}/client-scopes",
            json={
                "name": SCOPE,
                "protocol": "openid-connect",
                "attributes": {"include.in.token.scope": "true"},
                "protocolMappers": [
                    _make_mapper(
                        "audience",
                        "oidc-audience-mapper",
                        {"included.custom.audience": AUDIENCE, "access.token.claim": "true"},
                    )
                ],
            },
        )
        base = f"{self.web}/oidc/{self.name}"
        self.call_admin_api(
            "POST",
            f"{realm}/clients",
            json={
                "clientId": "annals",
                "secret": SECRET,
                "redirectUris": [f"{base}/callback/"],
                "directAccessGrantsEnabled": True,  # only so that a test can get a person's tokens
                "attributes": {
                    "pkce.code.challenge.method": "S256",
                    "backchannel.logout.url": f"{base}/logout/",
                    "backchannel.logout.session.required": "true",
                    "post.logout.redirect.uris": f"{self.web}/admin/login/",
                },
                "protocolMappers": [
                    _make_mapper(
                        "groups",
                        "oidc-group-membership-mapper",
                        {"claim.name": "groups", "full.path": "true", "id.token.claim": "true"},
                    )
                ],
            },
        )
        self.call_admin_api(
            "POST",
            f"{realm}/clients",
            json={
                "clientId": "audit-system",
                "secret": SECRET,
                "standardFlowEnabled": False,
                "serviceAccountsEnabled": True,
                "optionalClientScopes": [SCOPE],
            },
        )
        for login, first, last in (("m.petrov", "Михаил", "Петров"), ("boss", "Анна", "Орлова")):
            self.call_admin_api(
                "POST",
                f"{realm}/users",
                json={
                    "username": login,
                    "enabled": True,
                    "firstName": first,
                    "lastName": last,
                    "email": f"{login}@bank.example",
                    "emailVerified": True,
                    "credentials": [{"type": "password", "value": PASSWORD}],
                },
            )

    def call_admin_api(self, method: str, path: str, **options: Any) -> Any:
        """Call Keycloak's admin API below /admin/realms, and return the JSON of the answer or
        None."""
        granted = self.get_token(
            "master", "admin-cli", grant_type="password", username=ADMIN, password=PASSWORD
        )
        answer = requests.request(
            method,
            f"{self.url}/admin/realms{path}",
            headers={"Authorization": f"Bearer {granted['access_token']}"},
            timeout=300,
            **options,
        )
        assert answer.ok, answer.text
        return answer.json() if answer.text else None

    def find_user_id(self, login: str) -> str:
        [user] = self.call_admin_api("GET", f"/staff/users?exact=true&username={login}")
        return str(user["id"])

    def set_groups(self, login: str, *groups: str) -> None:
        """Make the user a member of these subgroups of /annals and of no other."""
        user = self.find_user_id(login)
        [top] = self.call_admin_api("GET", "/staff/groups?search=annals")
        for group in self.call_admin_api("GET", f"/staff/groups/{top['id']}/children"):
            method = "PUT" if group["name"] in groups else "DELETE"
            self.call_admin_api(method, f"/staff/users/{user}/groups/{group['id']}")

    def get_token(self, realm: str, client: str, **form: str) -> dict[str, Any]:
        """Request tokens from the token endpoint, and return its answer."""
        answer = requests.post(
            f"{self.url}/realms/{realm}/protocol/openid-connect/token",
            data={"client_id": client, **form},
            timeout=120,
        )
        assert answer.ok, answer.text
        return dict(answer.json())

    def request_program_token(self, scope: str = SCOPE) -> str:
        """Return a Bearer token of the program `audit-system`."""
        form = {"grant_type": "client_credentials", "client_secret": SECRET, "scope": scope}
        return str(self.get_token("staff", "audit-system", **form)["access_token"])

    def fill_in_form(self, page: str, login: str) -> dict[str, str]:
        """Return the fields of Keycloak's login form, with the values that `login` enters."""
        del page
        return {"username": login, "password": PASSWORD}


def _make_mapper(name: str, kind: str, config: Mapping[str, str]) -> dict[str, object]:
    protocol = "openid-connect"
    return {"name": name, "protocol": protocol, "protocolMapper": kind, "config": dict(config)}
