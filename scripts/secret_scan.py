"""Looks for secrets in all files of the repository, with detect-secrets.

What was found and is no secret is in scripts/not_secrets.json: the file, the kind and the SHA-1 of
the text, with the reason. --write adds what is found now, and removes what is gone; then fill in
the reasons. Exit 1: a finding that is not in the list, or one in it that is gone or has no reason.
A file in which nothing was found is not read again until it changes: .secret_scan_cache.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

from detect_secrets import SecretsCollection
from detect_secrets.__version__ import VERSION
from detect_secrets.settings import Settings, default_settings

ROOT = Path(__file__).resolve().parent.parent
REVIEWED = "scripts/not_secrets.json"
CACHE = ".secret_scan_cache"
# In these files, what pip, npm, go and scripts/kafka compare is no secret; everything else is read.
HASHED = re.compile(
    r"(^|/)(requirements(-\w+)?\.txt|package-lock\.json|go\.sum|kafka_jars\.sha256)$"
)
HASH = re.compile(
    r"--hash=sha256:[0-9a-f]{64}\b|\"integrity\": \"sha512-[A-Za-z0-9+/=]{88}\"|^[0-9a-f]{64} "
    r"| h1:[A-Za-z0-9+/]{43}=$",
    re.MULTILINE,
)
# The default filters through which a secret could be committed unseen: by its file, by a comment,
# by its form. The first one sends what it found to the service that it may belong to.
FILTERS = (
    "detect_secrets.filters.common.is_ignored_due_to_verification_policies",
    "detect_secrets.filters.allowlist.is_line_allowlisted",
    "detect_secrets.filters.heuristic.is_lock_file",
    "detect_secrets.filters.heuristic.is_non_text_file",
    "detect_secrets.filters.heuristic.is_potential_uuid",
    "detect_secrets.filters.heuristic.is_swagger_file",
)
ADVICE = (
    "If it is a secret: remove it and replace it where it is used, because it stays in the history."
    " If not: python scripts/secret_scan.py --write, and add the reason"
)

# file, kind, SHA-1 of the text
Key = tuple[str, str, str]


def files(root: Path) -> list[str]:
    """What is in the repository or would be added to it, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    names = sorted(set(done.stdout.split("\0")) - {"", REVIEWED})
    return [name for name in names if (root / name).is_file()]


def scan(root: Path) -> dict[Key, int]:
    """What is found, with the number of its line."""
    cache = root / CACHE
    clean = set(cache.read_text().split()) if cache.exists() else set()
    states = {name: state(root, name) for name in files(root)}
    with default_settings() as settings:
        settings.disable_filters(*FILTERS)
        # Without this the processes that scan switch some of them on again.
        Settings.DEFAULT_FILTERS.difference_update(FILTERS)
        found = SecretsCollection(root=str(root))
        changed = [name for name in states if states[name] not in clean]
        found.scan_files(*changed, num_processors=2)
        keys = {
            (name, one.type, one.secret_hash): one.line_number
            for name, one in found
            if not (HASHED.search(name) and is_hash(root / name, one.secret_value or ""))
        }
    unclean = {name for name, *_ in keys}
    now = sorted(state for name, state in states.items() if name not in unclean)
    cache.write_text("\n".join(now))
    return keys


def is_hash(file: Path, text: str) -> bool:
    """Whether a text is one of the hashes that a file consists of."""
    return len(text) >= 40 and any(text in one for one in HASH.findall(file.read_text()))


def state(root: Path, name: str) -> str:
    """A digest of everything that the result for a file depends on."""
    given = f"{VERSION}\0{FILTERS}\0{HASH.pattern}\0{name}\0".encode()
    return hashlib.sha256(given + (root / name).read_bytes()).hexdigest()


def reviewed(root: Path) -> dict[Key, str]:
    """What was found before and is no secret, with the reason."""
    path = root / REVIEWED
    entries = json.loads(path.read_text()) if path.exists() else []
    return {(one["file"], one["type"], one["sha1"]): one["why"] for one in entries}


def main(root: Path = ROOT, arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {REVIEWED}")
    write = parser.parse_args(arguments).write
    found, known = scan(root), reviewed(root)
    if write:
        entries = [
            {"file": file, "type": kind, "sha1": sha1, "why": known.get((file, kind, sha1), "")}
            for file, kind, sha1 in sorted(found)
        ]
        (root / REVIEWED).write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
        return 0
    faults = [
        *(f"{key[0]}:{line}: {key[1]}" for key, line in found.items() if key not in known),
        *(f"{key[0]}: {key[1]} of {REVIEWED} is gone" for key in known if key not in found),
        *(
            f"{key[0]}: {key[1]} has no reason in {REVIEWED}"
            for key, why in known.items()
            if not why
        ),
    ]
    print("\n".join([*faults, ADVICE] if faults else ["no secret found"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
