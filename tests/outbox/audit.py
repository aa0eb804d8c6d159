"""Compares the recorded documents with the rows of the database."""

import json
from typing import Any

from outbox.recording import message
from outbox.recording.message import RecordedVersion
from outbox.recording.recording_block import get_kind
from tests.outbox import recorded_versions
from tests.outbox.ways.models import KINDS

SnapshotByDocument = dict[str, Any]


def load_recorded() -> SnapshotByDocument:
    """Return the newest snapshot of each document that is not deleted."""
    newest: dict[str, RecordedVersion] = {}
    for version in recorded_versions.load_versions():
        newest_version = newest.get(version.document)
        if newest_version is None or newest_version.version < version.version:
            newest[version.document] = version
    return {name: json.loads(version.data) for name, version in newest.items() if version.type != 2}


def load_actual() -> SnapshotByDocument:
    """Return the snapshot of each document as computed from its present rows."""
    changes = [
        get_kind(model).make_change(row)  # type: ignore[union-attr]
        for model in KINDS
        for row in model._base_manager.all()
    ]
    snapshots = {
        change.key: json.loads(message.encode_snapshot(change.data, change.key))
        for change in changes
    }
    assert len(snapshots) == len(changes)
    return snapshots


def compare_documents() -> None:
    """Assert that the newest recorded snapshots equal the snapshots computed from the rows."""
    actual_documents, recorded_documents = load_actual(), load_recorded()
    wrong = {
        name: {"recorded": recorded_documents.get(name), "actual": actual_documents.get(name)}
        for name in actual_documents.keys() | recorded_documents.keys()
        if recorded_documents.get(name) != actual_documents.get(name)
    }
    assert not wrong, wrong


def check_numbers() -> dict[str, list[int]]:
    """Assert that version numbers have no gaps, and return the version types of each document."""
    versions_by_document: dict[str, list[RecordedVersion]] = {}
    for version in recorded_versions.load_versions():
        versions_by_document.setdefault(version.document, []).append(version)
    for versions in versions_by_document.values():
        versions.sort(key=lambda item: item.version)
        assert [item.version for item in versions] == list(range(1, len(versions) + 1))
    return {
        name: [item.type for item in versions] for name, versions in versions_by_document.items()
    }
