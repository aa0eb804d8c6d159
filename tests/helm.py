"""Lints and renders docker/helm/annals and checks it against Kubernetes.

`python -m tests.helm` gets helm, kubeconform and the API of Kubernetes through the Go proxy (needs
Go 1.24; some minutes) into ~/.cache/annals/helm. Nothing is sent to a cluster.
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
# What a bank has to say, and everything that is optional.
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


def folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "annals" / "helm"


def missing() -> str | None:
    """Why the chart cannot be checked here; None: it can."""
    there = all((folder() / name).exists() for name in ("helm", "kubeconform", "schemas"))
    return None if there else "needs helm and kubeconform: python -m tests.helm"


def get() -> None:
    """Get the programs and the schemas. Raises CalledProcessError."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"GOBIN": str(home), "CGO_ENABLED": "0"}
    for program in (HELM, KUBECONFORM):
        subprocess.run([go, "install", program], env=env, check=True)
    module = f"k8s.io/kubernetes@v{KUBERNETES}"
    done = subprocess.run(
        [go, "mod", "download", "-json", module], env=env, check=True, capture_output=True, cwd=home
    )
    source = Path(json.loads(done.stdout)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    write_schemas(json.loads(source.read_text())["definitions"], home / "schemas")


def write_schemas(definitions: dict[str, Any], to: Path) -> None:
    """A JSON schema for each kind of object, under the name by which kubeconform asks for it.
    Fields that Kubernetes does not know are faults."""
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
            found = {each: definitions[each] for each in reachable(definitions, name)}
            schema = {"$ref": f"#/definitions/{name}", "definitions": found}
            (to / file).write_text(json.dumps(schema))


def reachable(definitions: dict[str, Any], name: str) -> set[str]:
    """The definitions that one needs, itself included."""
    found, ahead = set[str](), [name]
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead += list(references(definitions[one]))
    return found


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix("#/definitions/")
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from references(each)


def run(*words: str | Path, given: str | None = None) -> str:
    """A program's output. Raises RuntimeError with it if the program fails."""
    done = subprocess.run(list(map(str, words)), input=given, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def rendered(**more: str) -> str:
    """The chart as YAML. more: values that override VALUES, with _ for a dot."""
    given = VALUES | {name.replace("_", "."): value for name, value in more.items()}
    words = [word for name, value in given.items() for word in ("--set-string", f"{name}={value}")]
    words[words.index("ingress.enabled=true") - 1] = "--set"
    return run(folder() / "helm", "template", "annals", CHART, "--kube-version", KUBERNETES, *words)


def check() -> str:
    """Lint, render and compare. What kubeconform says; raises RuntimeError."""
    required = [
        word
        for name in ("kafka.bootstrapServers", "web.settings.ANNALS_ALLOWED_HOSTS")
        for word in ("--set", f"{name}={VALUES[name]}")
    ]
    run(folder() / "helm", "lint", "--strict", CHART, *required)
    place = str(folder() / "schemas" / "{{ .ResourceKind }}{{ .KindSuffix }}.json")
    options = ("-strict", "-summary", "-schema-location", place)
    return run(folder() / "kubeconform", *options, given=rendered())


if __name__ == "__main__":
    get()
