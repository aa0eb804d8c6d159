"""Lints and renders the chart docker/helm/annals, and checks it against the schemas of Kubernetes.

`python -m tests.helm` downloads helm, kubeconform and these schemas through the Go proxy into
~/.cache/annals/helm. It needs Go 1.24, and takes some minutes. Nothing is sent to a cluster.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.consuming import ROOT

CHART = ROOT / "docker" / "helm" / "annals"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
KUBERNETES = "1.33.5"
# Values of the chart: the required ones, and all optional parts switched on.
VALUES = {
    "kafka.bootstrapServers": "kafka:9092",
    "web.settings.ANNALS_ALLOWED_HOSTS": "annals.bank.example",
    "web.settings.ANNALS_OIDC_FILE": "/etc/annals/providers.toml",
    "settings.ANNALS_RETENTION_DAYS": "90",
    "ingress.enabled": "true",
    "ingress.host": "annals.bank.example",
    "ingress.tlsSecret": "annals-tls",
    "files": "annals-files",
    "secret.files": "annals-secret-files",
}


def get_cache_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "annals" / "helm"


def explain_missing() -> str | None:
    """Return why the chart cannot be checked on this machine, or None if it can."""
    is_complete = all(
        (get_cache_folder() / name).exists() for name in ("helm", "kubeconform", "schemas")
    )
    return None if is_complete else "needs helm and kubeconform: python -m tests.helm"


def download_programs() -> None:
    """Download the programs and the schemas.

    Raises:
        CalledProcessError: A download failed.
    """
    go = shutil.which("go") or "/usr/local/go/bin/go"
    home = get_cache_folder()
    home.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"GOBIN": str(home), "CGO_ENABLED": "0"}
    for program in (HELM, KUBECONFORM):
        subprocess.run([go, "install", program], env=env, check=True)
    module = f"k8s.io/kubernetes@v{KUBERNETES}"
    finished = subprocess.run(
        [go, "mod", "download", "-json", module], env=env, check=True, capture_output=True, cwd=home
    )
    source = Path(json.loads(finished.stdout)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    write_schemas(json.loads(source.read_text())["definitions"], home / "schemas")


def write_schemas(definitions: dict[str, Any], to: Path) -> None:
    """Write a JSON schema for each kind of object, in a file that kubeconform finds.

    The schemas reject fields that Kubernetes does not know.
    """
    to.mkdir(exist_ok=True)
    for definition in definitions.values():
        if "properties" in definition:
            definition["additionalProperties"] = False
        if definition.get("format") == "int-or-string" or "Quantity" in str(
            definition.get("description", "")[:9]
        ):
            definition.pop("type", None)
            definition.pop("format", None)
            definition["oneOf"] = [{"type": "string"}, {"type": "number"}]
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = [kind["group"].split(".")[0]] if kind["group"] else []
            file = "-".join([kind["kind"].lower(), *group, kind["version"]]) + ".json"
            needed = {
                needed_name: definitions[needed_name]
                for needed_name in find_reachable(definitions, name)
            }
            schema = {"$ref": f"#/definitions/{name}", "definitions": needed}
            (to / file).write_text(json.dumps(schema))


def find_reachable(definitions: dict[str, Any], name: str) -> set[str]:
    """Return the names of the definitions to which a definition refers, including itself."""
    names, to_visit = set[str](), [name]
    while to_visit:
        current = to_visit.pop()
        if current not in names:
            names.add(current)
            to_visit += list(find_references(definitions[current]))
    return names


def find_references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix("#/definitions/")
        part = list(part.values())
    if isinstance(part, list):
        for item in part:
            yield from find_references(item)


def run_program(*arguments: str | Path, input_text: str | None = None) -> str:
    """Return the output of a program.

    Raises:
        RuntimeError: The program failed; the message is its output.
    """
    finished = subprocess.run(
        list(map(str, arguments)), input=input_text, capture_output=True, text=True
    )
    if finished.returncode != 0:
        raise RuntimeError(finished.stdout + finished.stderr)
    return finished.stdout


def render_chart(**changes: str) -> str:
    """Return the chart as YAML.

    Args:
        changes: Values that override VALUES. Their names have _ instead of a dot.
    """
    chart_values = VALUES | {name.replace("_", "."): value for name, value in changes.items()}
    arguments = [
        word for name, value in chart_values.items() for word in ("--set-string", f"{name}={value}")
    ]
    arguments[arguments.index("ingress.enabled=true") - 1] = "--set"
    return run_program(
        get_cache_folder() / "helm",
        "template",
        "annals",
        CHART,
        "--kube-version",
        KUBERNETES,
        *arguments,
    )


def check_chart() -> str:
    """Lint, render and validate the chart. Return the output of kubeconform.

    Raises:
        RuntimeError: A check failed.
    """
    required = [
        word
        for name in ("kafka.bootstrapServers", "web.settings.ANNALS_ALLOWED_HOSTS")
        for word in ("--set", f"{name}={VALUES[name]}")
    ]
    run_program(get_cache_folder() / "helm", "lint", "--strict", CHART, *required)
    schema_location = str(
        get_cache_folder() / "schemas" / "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    )
    options = ("-strict", "-summary", "-schema-location", schema_location)
    return run_program(get_cache_folder() / "kubeconform", *options, input_text=render_chart())


if __name__ == "__main__":
    download_programs()
