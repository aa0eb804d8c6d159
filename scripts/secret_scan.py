"""Looks for secrets in all files of the repository, with detect-secrets.

scripts/not_secrets.json lists the findings that are not secrets, by file, kind and SHA-1 of the
text, with the reason. `--write` adds new findings to the list and removes entries that are not
found any more; then fill in the reasons. The exit code is 1 if a finding is not in the list, or if
an entry has no finding or no reason. A file without findings is not read again until it changes:
see .secret_scan_cache.
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
# The files with hashes that pip, npm, go and scripts/kafka compare. Only their hashes are skipped.
HASHED = re.compile(
    r"(^|/)(requirements(-\w+)?\.txt|package-lock\.json|go\.sum|kafka_jars\.sha256)$"
)
HASH = re.compile(
    r"--hash=sha256:[0-9a-f]{64}\b|\"integrity\": \"sha512-[A-Za-z0-9+/=]{88}\"|^[0-9a-f]{64} "
    r"| h1:[A-Za-z0-9+/]{43}=$",
    re.MULTILINE,
)
# The default filters that are switched off. They skip a finding because of its file, a comment or
# its form, so that a secret could be committed unseen. The first one sends each finding to the
# service that it may belong to.
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

# A finding: its file, its kind, and the SHA-1 of its text.
FindingKey = tuple[str, str, str]


def list_files(root: Path) -> list[str]:
    """Return the files that are in the repository or could be added, relative to its root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    finished = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    names = sorted(set(finished.stdout.split("\0")) - {"", REVIEWED})
    return [name for name in names if (root / name).is_file()]


def scan_files(root: Path) -> dict[FindingKey, int]:
    """Return the line number of each finding in the repository."""
    cache = root / CACHE
    clean = set(cache.read_text().split()) if cache.exists() else set()
    states = {name: compute_state(root, name) for name in list_files(root)}
    with default_settings() as settings:
        settings.disable_filters(*FILTERS)
        # Without this, the scanning processes enable some of the filters again.
        Settings.DEFAULT_FILTERS.difference_update(FILTERS)
        secrets = SecretsCollection(root=str(root))
        changed = [name for name in states if states[name] not in clean]
        secrets.scan_files(*changed, num_processors=2)
        keys = {
            (name, secret.type, secret.secret_hash): secret.line_number
            for name, secret in secrets
            if not (HASHED.search(name) and is_hash(root / name, secret.secret_value or ""))
        }
    unclean = {name for name, *_ in keys}
    clean_states = sorted(state for name, state in states.items() if name not in unclean)
    cache.write_text("\n".join(clean_states))
    return keys


def is_hash(file: Path, text: str) -> bool:
    """Return whether a text is one of the hashes in a file of hashes."""
    return len(text) >= 40 and any(
        text in hash_text for hash_text in HASH.findall(file.read_text())
    )


def compute_state(root: Path, name: str) -> str:
    """Return a digest that changes if the result of scanning a file may change."""
    conditions = f"{VERSION}\0{FILTERS}\0{HASH.pattern}\0{name}\0".encode()
    return hashlib.sha256(conditions + (root / name).read_bytes()).hexdigest()


def load_reviewed(root: Path) -> dict[FindingKey, str]:
    """Return the earlier findings that are not secrets, each with its reason."""
    path = root / REVIEWED
    entries = json.loads(path.read_text()) if path.exists() else []
    return {(entry["file"], entry["type"], entry["sha1"]): entry["why"] for entry in entries}


def main(root: Path = ROOT, arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {REVIEWED}")
    write = parser.parse_args(arguments).write
    findings, reviewed_findings = scan_files(root), load_reviewed(root)
    if write:
        entries = [
            {
                "file": file,
                "type": kind,
                "sha1": sha1,
                "why": reviewed_findings.get((file, kind, sha1), ""),
            }
            for file, kind, sha1 in sorted(findings)
        ]
        (root / REVIEWED).write_text(json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
        return 0
    faults = [
        *(
            f"{key[0]}:{line}: {key[1]}"
            for key, line in findings.items()
            if key not in reviewed_findings
        ),
        *(
            f"{key[0]}: {key[1]} of {REVIEWED} is gone"
            for key in reviewed_findings
            if key not in findings
        ),
        *(
            f"{key[0]}: {key[1]} has no reason in {REVIEWED}"
            for key, reason in reviewed_findings.items()
            if not reason
        ),
    ]
    print("\n".join([*faults, ADVICE] if faults else ["no secret found"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
