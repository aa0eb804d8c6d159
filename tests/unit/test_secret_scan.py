"""scripts/secret_scan.py finds passwords and keys that are committed by mistake.

The tests assemble the secrets from parts, so that the scan does not find them in this file.
"""

import base64
import json
import subprocess
from pathlib import Path
from runpy import run_path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = run_path(str(ROOT / "scripts" / "secret_scan.py"))


def make_token() -> str:
    """Return an invented JWT."""
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": "m.prygunov", "exp": 1_900_000_000})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join(item.rstrip("=") for item in (*encoded, base64.b64encode(b"s" * 33).decode()))


PLANTED = {
    "aws.py": ("AWS Access Key", f'KEY = "{"AKIA"}{"QX7RT2MVB3WLZ9KD"}"\n'),
    "id_rsa": ("Private Key", f"-----BEGIN {'RSA PRIVATE'} KEY-----\nMIIEpAIBAAKCAQEA\n"),
    "call.sh": ("JSON Web Token", f"curl -H 'Authorization: Bearer {make_token()}' https://bank\n"),
    "settings.py": ("Secret Keyword", f'DATABASE_{"PASSWORD"} = "{"kR7"}{"vq2Lw9x"}"\n'),
    "compose.env": (
        "Basic Auth Credentials",
        f"URL=postgresql://annals:{'kR7vq2Lw9x'}@db/annals\n",
    ),
}
PRAGMA = "pragma: " + "allowlist secret"
ACCESS_KEY = PLANTED["aws.py"][1].strip()
# Secrets that the library of the scan would ignore because of the file, a comment or the form.
UNSEEN = {
    "aws.py": f"{ACCESS_KEY}  # {PRAGMA}\n",
    "uv.lock": ACCESS_KEY,
    "Cargo.lock": ACCESS_KEY,
    "logo.svg": f"<svg><!-- {ACCESS_KEY} --></svg>",
    "swagger.json": json.dumps({"key": ACCESS_KEY[7:-1]}),
    "package-lock.json": json.dumps({"resolved": PLANTED["compose.env"][1].strip()}),
    "requirements.txt": "--extra-index-url https://ci:{}@pypi.bank/simple\n".format("kR7vq2Lw9x"),
    "provider.toml": 'client_{} = "b7c1e0a2-9d3f-{}-8c77-1f2e3d4c5b6a"\n'.format("secret", "4a55"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one file without a secret."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "fine.py").write_text("PASSWORD = os.environ['PASSWORD']\n")
    assert SCRIPT["main"](tmp_path, []) == 0
    return tmp_path


@pytest.mark.parametrize(
    "name, kind, text",
    [
        *((name, *values) for name, values in PLANTED.items()),
        *((name, "", text) for name, text in UNSEEN.items()),
    ],
)
def test_secret_scan_finds_each_planted_secret(
    root: Path, name: str, kind: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / name).write_text(text)
    for _ in range(2):  # the next scan reports it too, without reading unchanged files
        assert SCRIPT["main"](root, []) == 1
        assert f"{name}:1: {kind}" in capsys.readouterr().out


def test_reviewed_exception_of_secret_scan_needs_a_reason(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "settings.py").write_text(PLANTED["settings.py"][1])
    assert SCRIPT["main"](root, ["--write"]) == 0
    assert SCRIPT["main"](root, []) == 1
    assert "has no reason" in capsys.readouterr().out
    path = root / SCRIPT["REVIEWED"]
    path.write_text(path.read_text().replace('"why": ""', '"why": "of a test"'))
    assert SCRIPT["main"](root, []) == 0
    (root / "settings.py").unlink()
    assert SCRIPT["main"](root, []) == 1
    assert "is gone" in capsys.readouterr().out
