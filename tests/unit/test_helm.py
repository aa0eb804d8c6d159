"""docker/helm/annals: what can be said without a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class

from annals import env
from tests import helm

VALUES = yaml.safe_load((helm.CHART / "values.yaml").read_text())


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    """The objects of the chart."""
    if (why := helm.missing()) is not None:
        pytest.skip(why)
    return [each for each in yaml.safe_load_all(helm.rendered()) if each]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and specification of each pod."""
    for each in objects:
        spec = each["spec"].get("jobTemplate", each)["spec"]
        if "template" in spec:
            yield each["metadata"]["name"], spec["template"]["spec"]


@pytest.mark.parametrize("name", VALUES["cron"])
def test_the_jobs_run_commands_that_exist(name: str) -> None:
    command, *args = VALUES["cron"][name]["args"]
    load_command_class(get_commands()[command], command).create_parser("", command).parse_args(args)


def test_the_chart_is_what_kubernetes_knows(objects: list[dict[str, Any]]) -> None:
    assert f"Valid: {len(objects)}, Invalid: 0, Errors: 0, Skipped: 0" in helm.check()


def test_a_field_that_kubernetes_does_not_know_is_a_fault(objects: list[dict[str, Any]]) -> None:
    """The schemas are made by tests/helm.py."""
    wrong = helm.rendered().replace("terminationGracePeriodSeconds", "terminationGraceSeconds")
    with pytest.raises(RuntimeError, match="terminationGraceSeconds"):
        helm.conform(wrong)


def test_no_container_is_root_or_writes_outside_its_own_folders(
    objects: list[dict[str, Any]],
) -> None:
    found = dict(pods(objects))
    assert {"annals-web", "annals-consume", "annals-migrate", "annals-maintain"} <= set(found)
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["automountServiceAccountToken"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"requests", "limits"} <= set(container["resources"]), name


def test_each_pod_has_a_network_policy_and_each_process_the_login_that_it_needs(
    objects: list[dict[str, Any]],
) -> None:
    policies = {
        each["spec"]["podSelector"]["matchLabels"]["annals/process"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
    }
    assert policies == {"web", "consume", "job"}
    for name, pod in pods(objects):
        for container in pod["containers"]:
            given = {each["name"]: each for each in container["env"]}
            url = given["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["key"]
            kind = name.removeprefix("annals-")
            assert url == {"web": "web-url", "consume": "consumer-url"}.get(kind, "owner-url")


def test_it_sets_only_settings_that_exist(objects: list[dict[str, Any]]) -> None:
    for _, pod in pods(objects):
        for container in pod["containers"]:
            given = {each["name"]: each.get("value", "1" * 50) for each in container["env"]}
            env.read(given | {"DATABASE_URL": "postgresql://a@b/c"})


def test_no_secret_is_in_the_chart(objects: list[dict[str, Any]]) -> None:
    assert not [each for each in objects if each["kind"] == "Secret"]
    for _, pod in pods(objects):
        for container in pod["containers"]:
            plain = {each["name"] for each in container["env"] if "value" in each}
            assert not [name for name in plain if re.search("KEY|TOKEN|PASSWORD|URL", name)]


@pytest.mark.parametrize("value", ["kafka.bootstrapServers", "ingress.host"])
def test_a_value_that_is_missing_is_named(value: str, objects: list[dict[str, Any]]) -> None:
    with pytest.raises(RuntimeError, match=f"{value} is required"):
        helm.rendered(**{value: ""})
