"""The jars of Apache Kafka, which are downloaded once from the Maven repository and then cached.

kafka_jars.sha256 beside this file has the SHA-256 of each jar, as `sha256sum *.jar` prints it.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from annals.embedded.process import EmbeddedError
from history.common import private_files

SUMS = Path(__file__).with_name("kafka_jars.sha256")
# docker/compose.yaml has the same version; a test compares them.
VERSION = "4.3.1"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    # Kafka logs through slf4j but has no implementation that prints the lines.
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PROJECT = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>annals</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <dependencies>
{}
  </dependencies>
</project>
"""
DEPENDENCY = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId>"
    "<version>{}</version></dependency>"
)


def is_cached() -> bool:
    """Return whether the jars are in the cache, so that Maven is not needed."""
    return _get_cache_folder().exists()


def fetch_jars() -> Path:
    """Return the directory of the jars, after downloading them with Maven if they are not cached.

    Raises:
        EmbeddedError: The jars are not exactly those of kafka_jars.sha256.
    """
    folder = _get_cache_folder()
    with private_files.hold_file_lock(folder.with_name("lock")):
        if not folder.exists():
            _copy_dependencies(folder)
        _check_jars(folder)
    return folder


def _get_cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "annals" / f"apache-kafka-{VERSION}"


def _copy_dependencies(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise EmbeddedError("Fetching the jars of Apache Kafka needs Maven: install it (mvn)")
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    project = draft / "pom.xml"
    project.write_text(
        PROJECT.format("\n".join(DEPENDENCY.format(*artifact) for artifact in ARTIFACTS))
    )
    finished = subprocess.run(
        [
            maven,
            "--batch-mode",
            "--quiet",
            "--strict-checksums",
            "--file",
            str(project),
            PLUGIN,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={draft}",
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        raise EmbeddedError(f"Maven could not fetch Apache Kafka:\n{finished.stdout.strip()}")
    _check_jars(draft)
    draft.rename(folder)


def _check_jars(folder: Path) -> None:
    """Compare the SHA-256 of all jars with kafka_jars.sha256.

    Raises:
        EmbeddedError: A jar is missing, changed or not listed. A jar that is not listed is refused,
            because Java loads every jar in the folder.
    """
    pairs = (line.split() for line in SUMS.read_text().splitlines())
    expected = {name: sha256 for sha256, name in pairs}
    actual_digests = {jar.name: _compute_sha256(jar) for jar in folder.glob("*.jar")}
    wrong = sorted(
        name
        for name in expected.keys() | actual_digests.keys()
        if expected.get(name) != actual_digests.get(name)
    )
    if wrong:
        raise EmbeddedError(
            f"Not the jars of Apache Kafka {VERSION}: in {folder}, {', '.join(wrong[:5])} "
            f"{'is' if len(wrong) == 1 else 'are'} missing, unknown or changed "
            f"({len(wrong)} of {len(expected)}, compared with {SUMS.name}). "
            "Remove this folder; if that does not help, the Maven repository has other files"
        )


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
