"""Asks whether an installed package has a known vulnerability: pip-audit, and npm for the tests.

Exit 1: one has; the output names it and the version without. What no service could say is printed
as "not checked", with the reason, and is no failure: many networks reach only a package index.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements-dev.txt"  # has all of requirements.txt
NPM = ROOT / "tests" / "access" / "provider"
# A mirror of the index often has no vulnerabilities; then the next one is asked.
SERVICES = (("--vulnerability-service", "pypi"), ("--vulnerability-service", "osv"))
TIMEOUT_S = "10"


def pinned(requirements: Path) -> set[str]:
    """The names of the packages that are installed here."""
    lines = (line.partition(" --hash")[0] for line in requirements.read_text().splitlines())
    found = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    return {
        canonicalize_name(one.name) for one in found if one.marker is None or one.marker.evaluate()
    }


def pip_audit(requirements: Path, service: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """What is known of each package: its faults, none if it is sound; what is not known is left
    out, and then there is a reason."""
    command = [
        *(sys.executable, "-m", "pip_audit", "--requirement", str(requirements)),
        *("--require-hashes", "--disable-pip", "--format", "json", "--timeout", TIMEOUT_S),
        *("--progress-spinner", "off", *service),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return {}, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    skipped = [one["skip_reason"] for one in packages if "skip_reason" in one]
    known = {
        canonicalize_name(one["name"]): [
            f"{one['name']} {one['version']}: {fault['id']}, "
            f"fixed in {', '.join(fault['fix_versions']) or 'no version'}"
            for fault in one["vulns"]
        ]
        for one in packages
        if "skip_reason" not in one
    }
    return known, skipped[0] if skipped else ""


def python(requirements: Path, services: Sequence[Sequence[str]]) -> int:
    known: dict[str, list[str]] = {}
    missing = wanted = pinned(requirements)
    reasons = []
    for service in services:
        found, reason = pip_audit(requirements, service)
        known = found | known
        missing = wanted - known.keys()
        if not missing:
            break
        reasons.append(f"{service[-1]}: {reason or f'it says nothing of {len(missing)} packages'}")
    else:
        which = f"{len(missing)} of {len(wanted)}" if known else "all"
        print(f"not checked: {which} Python packages. {'; '.join(reasons)}")
    faults = [line for lines in known.values() for line in lines]
    if faults:
        print("\n".join(faults))
    elif known:
        print(f"{len(known)} Python packages: no known vulnerability")
    return 1 if faults else 0


def node(folder: Path) -> int:
    if shutil.which("npm") is None:
        print("not checked: the packages of npm. There is no npm")
        return 0
    wanted = len(json.loads((folder / "package-lock.json").read_text())["packages"]) - 1
    command = ["npm", "audit", "--json", "--package-lock-only"]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        report = {}
    return npm_report(report, wanted)


def npm_report(report: dict[str, Any], wanted: int) -> int:
    """wanted: how many packages there are."""
    faults = report.get("vulnerabilities")
    if faults is None:
        print(f"not checked: the packages of npm. {report.get('message', 'npm gives no report')}")
        return 0
    for name, fault in faults.items():
        print(f"{name} (npm) {fault['range']}: {fault['severity']}")
    checked = report.get("metadata", {}).get("dependencies", {}).get("total", 0)
    if checked < wanted:
        print(
            f"not checked: {wanted - checked} of {wanted} packages of npm. The report has no more"
        )
    elif not faults:
        print("the packages of npm: no known vulnerability")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(max(python(REQUIREMENTS, SERVICES), node(NPM)))
