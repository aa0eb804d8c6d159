"""Checks Python and npm packages for known vulnerabilities, with pip-audit and with npm audit.

If a package has a vulnerability, the exit code is 1, and the output names the package and the
version that fixes it. Packages that no service could check are printed as "not checked" with the
reason. That is not a failure, because many networks reach only a package index.
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
# The services to ask, in this order. A mirror of the index often has no data on vulnerabilities.
SERVICES = (("--vulnerability-service", "pypi"), ("--vulnerability-service", "osv"))
TIMEOUT_S = "10"


def list_pinned(requirements: Path) -> set[str]:
    """Return the names of the packages in a requirements file that this platform installs."""
    lines = (line.partition(" --hash")[0] for line in requirements.read_text().splitlines())
    requirements_ = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    return {
        canonicalize_name(requirement.name)
        for requirement in requirements_
        if requirement.marker is None or requirement.marker.evaluate()
    }


def run_pip_audit(requirements: Path, service: Sequence[str]) -> tuple[dict[str, list[str]], str]:
    """Return the known vulnerabilities by package, and why some packages could not be checked.

    The reason is empty if all were checked. A package without vulnerabilities has an empty list. A
    package that the service does not know is left out.
    """
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(requirements),
        "--require-hashes",
        "--disable-pip",
        "--format",
        "json",
        "--timeout",
        TIMEOUT_S,
        "--progress-spinner",
        "off",
        *service,
    ]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        packages = json.loads(finished.stdout)["dependencies"]
    except (ValueError, KeyError):
        return {}, (finished.stderr.strip().splitlines() or ["no answer"])[-1]
    skip_reasons = [package["skip_reason"] for package in packages if "skip_reason" in package]
    faults_by_package = {
        canonicalize_name(package["name"]): [
            f"{package['name']} {package['version']}: {fault['id']}, "
            f"fixed in {', '.join(fault['fix_versions']) or 'no version'}"
            for fault in package["vulns"]
        ]
        for package in packages
        if "skip_reason" not in package
    }
    return faults_by_package, skip_reasons[0] if skip_reasons else ""


def audit_python(requirements: Path, services: Sequence[Sequence[str]]) -> int:
    faults_by_package: dict[str, list[str]] = {}
    missing = package_names = list_pinned(requirements)
    reasons = []
    for service in services:
        answered, reason = run_pip_audit(requirements, service)
        faults_by_package = answered | faults_by_package
        missing = package_names - faults_by_package.keys()
        if not missing:
            break
        reasons.append(f"{service[-1]}: {reason or f'it does not know {len(missing)} packages'}")
    else:
        unchecked = f"{len(missing)} of {len(package_names)}" if faults_by_package else "all"
        print(f"not checked: {unchecked} Python packages. {'; '.join(reasons)}")
    faults = [line for lines in faults_by_package.values() for line in lines]
    if faults:
        print("\n".join(faults))
    elif faults_by_package:
        print(f"{len(faults_by_package)} Python packages: no known vulnerability")
    return 1 if faults else 0


def audit_node(folder: Path) -> int:
    if shutil.which("npm") is None:
        print("not checked: the packages of npm. npm is not installed")
        return 0
    package_count = len(json.loads((folder / "package-lock.json").read_text())["packages"]) - 1
    command = ["npm", "audit", "--json", "--package-lock-only"]
    finished = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(finished.stdout)
    except ValueError:
        report = {}
    return report_npm(report, package_count)


def report_npm(report: dict[str, Any], package_count: int) -> int:
    """Print the faults in npm's report, and return the exit code.

    Args:
        package_count: How many packages should have been checked.
    """
    faults = report.get("vulnerabilities")
    if faults is None:
        print(f"not checked: the packages of npm. {report.get('message', 'npm gives no report')}")
        return 0
    for name, fault in faults.items():
        print(f"{name} (npm) {fault['range']}: {fault['severity']}")
    checked = report.get("metadata", {}).get("dependencies", {}).get("total", 0)
    if checked < package_count:
        print(
            f"not checked: {package_count - checked} of {package_count} packages of npm. They are "
            "not in npm's report"
        )
    elif not faults:
        print("the packages of npm: no known vulnerability")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(max(audit_python(REQUIREMENTS, SERVICES), audit_node(NPM)))
