"""scripts/audit.py: a vulnerability fails, and what could not be asked is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = run_path(str(ROOT / "scripts" / "audit.py"))


class Osv(BaseHTTPRequestHandler):
    """Answers as osv.dev does: it knows a vulnerability of Django 4.2.1 only."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        affected = {"package": asked["package"], "ranges": [{"type": "ECOSYSTEM", "events": []}]}
        affected["ranges"][0]["events"] = [{"introduced": "0"}, {"fixed": "4.2.2"}]
        fault = {"id": "PYSEC-1", "details": "bad", "affected": [affected]}
        name = (asked["package"]["name"], asked["version"])
        body = json.dumps({"vulns": [fault]} if name == ("django", "4.2.1") else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def osv() -> Iterator[tuple[str, ...]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1/query"
        yield ("--vulnerability-service", "osv", "--osv-url", url)
        server.shutdown()


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("".join(f"{name} --hash=sha256:{64 * '0'}\n" for name in ("a==1", "b==2")))
    return path


AWAY = ("--vulnerability-service", "osv", "--osv-url", "http://127.0.0.1:9/v1/query")


def test_sound_packages_pass_when_one_service_answers(
    requirements: Path, osv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert SCRIPT["python"](requirements, [AWAY, osv]) == 0
    assert capsys.readouterr().out == "2 Python packages: no known vulnerability\n"


def test_a_vulnerability_fails(
    requirements: Path, osv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with requirements.open("a") as file:
        file.write(f"django==4.2.1 --hash=sha256:{64 * '0'}\n")
    assert SCRIPT["python"](requirements, [osv]) == 1
    assert capsys.readouterr().out == "django 4.2.1: PYSEC-1, fixed in 4.2.2\n"


def test_without_a_service_it_says_what_was_not_checked(
    requirements: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SCRIPT["python"](requirements, [AWAY]) == 0
    [said] = capsys.readouterr().out.splitlines()
    assert said.startswith("not checked: all Python packages. http://127.0.0.1:9/v1/query: ")


@pytest.mark.parametrize("answered", [[], ["A"]])
def test_packages_that_no_answer_names_are_not_checked(
    answered: list[str],
    requirements: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "pip_audit"  # in the place of pip-audit: it prints a short report
    folder.mkdir()
    (folder / "__init__.py").touch()
    report = {"dependencies": [{"name": one, "version": "1", "vulns": []} for one in answered]}
    (folder / "__main__.py").write_text(f"print({json.dumps(json.dumps(report))})")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with requirements.open("a") as file:
        file.write(f"c==3 ; sys_platform == 'win32' \\\n    --hash=sha256:{64 * '0'}\n")
    assert SCRIPT["python"](requirements, [("--one",)]) == 0
    said = capsys.readouterr().out.splitlines()
    rest = 2 - len(answered)
    which = f"{rest} of 2" if answered else "all"
    why = f"--one: it says nothing of {rest} packages"
    assert said[0] == f"not checked: {which} Python packages. {why}"
    assert said[1:] == [f"{len(answered)} Python packages: no known vulnerability"] * len(answered)


@pytest.mark.parametrize(
    "report, said",
    [
        ({"vulnerabilities": {}}, "not checked: 3 of 3 packages of npm. The report has no more"),
        (
            {"vulnerabilities": {}, "metadata": {"dependencies": {"total": 3}}},
            "the packages of npm: no known vulnerability",
        ),
    ],
)
def test_a_report_of_npm_must_have_every_package(
    report: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert SCRIPT["npm_report"](report, 3) == 0
    assert capsys.readouterr().out == f"{said}\n"


def test_the_whole_run_asks() -> None:
    assert "scripts/audit.py" in (ROOT / "scripts" / "test").read_text()
