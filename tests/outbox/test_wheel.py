"""The wheel annals-outbox has the app and nothing else."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

FOLDER = Path(__file__).parents[2] / "outbox"


def test_the_wheel_has_every_file_of_the_app_and_no_other(tmp_path: Path) -> None:
    source = tmp_path / "outbox"
    shutil.copytree(FOLDER, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, source], check=True)
    [wheel] = tmp_path.glob("annals_outbox-*.whl")
    with ZipFile(wheel) as opened:
        names = opened.namelist()
        [metadata] = (name for name in names if name.endswith("/METADATA"))
        text = opened.read(metadata).decode()
    needs = re.findall(r"^Requires-Dist: ([\w-]+)", text, re.MULTILINE)
    assert needs == ["django", "psycopg", "confluent-kafka"]
    files = {name for name in names if ".dist-info/" not in name}
    assert files == {
        str(path.relative_to(FOLDER.parent))
        for path in FOLDER.rglob("*")
        if path.suffix in {".py", ".html", ".po", ".mo", ".typed"} and "build" not in path.parts
    }
