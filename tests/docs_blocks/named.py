"""What the tests of this folder do not run, each with its reason, and where else it is run.

Keys are the page and the first line of a block; of a block for a shell, the page and the line. An
entry that is on no page any more fails a test.
"""

from __future__ import annotations

from typing import Final

from annals import __version__

INTEGRATE: Final = "tests/shop/test_integrate.py"
_STEPS: Final = f"{INTEGRATE}::test_the_commands_bring_a_product_of_the_shop_into_annals"
_SHOP: Final = f"{INTEGRATE}::test_the_code_is_that_of_the_shop"
_API: Final = "tests/db/test_api_docs.py::test_the_examples_run"
_BACKUP: Final = "tests/system/test_backup_page.py"
_KAFKA_SCRIPT: Final = "tests/system/test_kafka_script.py"
_EMBEDDED: Final = "tests/system/test_embedded_command.py"
_DEMO: Final = "tests/system/test_demo.py"
_WHEEL: Final = "tests/system/test_wheel.py"
_CLUSTER: Final = "it needs a Citus cluster, as all of tests/citus"
_FILE: Final = f"annals-{__version__}-py3-none-any.whl"
_INSTALLED: Final = "no index has the wheel: `python -m tests.installed` runs it with packages"
_CLUSTER: Final = "needs a cluster of Kubernetes; the command in the pod is tried"
_OUTPUT: Final = "what is printed, no input"

# Blocks and lines that a test elsewhere runs or compares: file, or file::test.
ELSEWHERE: Final = {
    ("README.md", "scripts/demo"): _DEMO,
    ("docs/api.md", "# API=http://localhost:8000/api/v1  ID=the id of an application"): _API,
    ("docs/api.md", "import base64, json, os, urllib.parse, urllib.request"): _API,
    ("docs/backup.md", "ALTER SYSTEM SET archive_mode = 'on';"): _BACKUP,
    ("docs/backup.md", "pg_basebackup --host db.bank.example --username backup_login --pgdata"
     " /backup/base --checkpoint fast"): _BACKUP,
    ("docs/backup.md", "mv /var/lib/postgresql/18/main /var/lib/postgresql/18/lost"): _BACKUP,
    ("docs/backup.md", "cp --archive /backup/base /var/lib/postgresql/18/main"): _BACKUP,
    ("docs/backup.md", "touch /var/lib/postgresql/18/main/recovery.signal"): _BACKUP,
    ("docs/backup.md", "restore_command = 'cp /backup/wal/%f %p'"): _BACKUP,
    ("docs/contract.md", "bad_field   `version` is a text; it must be a whole number from 0 to"
     " 2147483647, written in digits without quotes"): "tests/unit/test_contract_reasons.py",
    ("docs/contract.md", '"""Sends three versions of one application: python produce.py'
     ' localhost:9092 TOPIC ID"""'): "tests/kafka/test_producers.py",
    ("docs/embedded.md", "scripts/kafka start"): _KAFKA_SCRIPT,
    ("docs/embedded.md", "scripts/kafka start --secured"): _KAFKA_SCRIPT,
    ("docs/embedded.md", "scripts/kafka status"): _KAFKA_SCRIPT,
    ("docs/embedded.md", "scripts/kafka stop"): _KAFKA_SCRIPT,
    ("docs/first-hour.md", "ALTER SYSTEM SET shared_buffers = '4GB';"):
        "tests/system/test_server_settings.py",
    ("docs/first-hour.md", "gunicorn --config python:annals.server annals.wsgi"):
        "tests/system/test_server_settings.py",
    ("docs/install.md", "scripts/build"): _WHEEL,
    ("docs/integrate.md", "# shop/settings.py"): _SHOP,
    ("docs/integrate.md", "# orders/models.py"): _SHOP,
    ("docs/integrate.md", "# orders/admin.py"): _SHOP,
    ("docs/integrate.md", "python manage.py migrate"): _STEPS,
    ("docs/integrate.md", "python manage.py check --database default"): _STEPS,
    ("docs/integrate.md", "python manage.py demo_data"): _STEPS,
    ("docs/integrate.md", "python manage.py outbox status"): _STEPS,
    ("docs/integrate.md", "# in the service: python manage.py shell"): _STEPS,
    ("docs/integrate.md", "annals migrate"): _STEPS,
    ("docs/integrate.md", "annals grants --apply"): _STEPS,
    ("docs/integrate.md", "annals partitions maintain"): _STEPS,
    ("docs/integrate.md", "annals people import examples/shop/annals-people.csv"): _STEPS,
    ("docs/integrate.md", "annals consume --until-idle 1"): _STEPS,
    ("docs/integrate.md", "annals trace --entity product --id KETTLE-17 --version 1"): _STEPS,
    ("docs/integrate.md", "python manage.py outbox relay --until-idle 1"): _STEPS,
    ("docs/integrate.md", "# /etc/systemd/system/shop-relay.service"):
        f"{INTEGRATE}::test_the_unit_runs_the_relay",
    ("docs/integrate.md", "# settings.py"): f"{INTEGRATE}::test_the_two_lines_of_versions_again",
    ("docs/kafka.md", "UNREAD top-storage.export.product-instance[0]: 1,204,331 messages; data will"
     " be lost in 2 h 10 min; catching up takes 40 min"): "tests/db/test_losses.py",
    ("docs/kinds.md", 'annals: ANNALS_ENTITIES_FILE is wrong: /etc/annals/kinds.toml: kind "order":'
     ' search: number: must be a JSON pointer, which begins with a slash: "/number". See'
     " docs/kinds.md."):
        "tests/unit/test_docs_kinds.py::test_the_sentence_of_the_page_is_the_one_that_is_printed",
    ("docs/partitions.md", "python -m pytest -s tests/db/test_partitions_in_use.py"):
        "tests/db/test_partitions_in_use.py",
}  # fmt: skip

# Blocks and lines that no test runs, and why.
NOT_RUN: Final = {
    ("README.md", "scripts/test"): "it runs this test",
    ("docs/citus.md", "SELECT * FROM run_command_on_all_nodes($$ DO $do$ DECLARE each regprocedure;"
     " BEGIN"): _CLUSTER,
    ("docs/citus.md", "SELECT citus_update_node(nodeid, 'NEW HOST', 5432) FROM pg_dist_node"
     " WHERE nodename = 'OLD HOST' AND nodeport = 5432;"): _CLUSTER,
    ("docs/citus.md", "SELECT recover_prepared_transactions();"): _CLUSTER,
    ("docs/citus.md", "python -m tests.citus.faults --stop 'COMMAND {host} {port}' --start"
     " 'COMMAND {host} {port}' --third HOST:PORT postgresql://postgres@COORDINATOR/postgres"):
        _CLUSTER,
    ("docs/install.md", f"python3 -m venv /opt/annals-{__version__}"): _INSTALLED,
    ("docs/install.md", f"ln --symbolic /opt/annals-{__version__} /opt/annals"): _INSTALLED,
    ("docs/install.md", "/opt/annals/bin/pip install --require-hashes --requirement"
     " requirements-production.txt"): _INSTALLED,
    ("docs/install.md", f"/opt/annals/bin/pip install --no-index {_FILE}"):
        _INSTALLED,
    ("docs/install.md", f"pip install '{_FILE}[embedded]'"): _INSTALLED,
    ("docs/kubernetes.md", "helm upgrade --install annals docker/helm/annals --namespace annals"
     " --values values.yaml"): "needs a cluster; its values are compared with the chart",
    ("docs/kubernetes.md", "kubectl exec deployment/annals-consume -- annals ledger"): _CLUSTER,
    ("docs/kubernetes.md", "kubectl exec deployment/annals-web -- annals gaps list"): _CLUSTER,
    ("docs/kubernetes.md", "kubectl create job annals-operator --from=cronjob/annals-maintain"
     " --dry-run=client --output json | jq '.spec.template.spec.containers[0].args = [\"sleep\","
     " \"3400\"]' | kubectl create --filename -"): _CLUSTER,
    ("docs/kubernetes.md", "kubectl exec job/annals-operator -- annals partitions plan"): _CLUSTER,
    ("docs/kubernetes.md", "kubectl delete job annals-operator"): _CLUSTER,
    ("docs/partitions.md", "product_instance_aud/2026-08-21/part-00000-3f9c02ab.parquet"): _OUTPUT,
}  # fmt: skip

_SIMULATE: Final = "tests/kafka/test_simulate.py"
# Commands whose words are only parsed here: where such a one is run.
ONLY_PARSED: Final = {
    "consume --topics top-storage.export.product-instance,"
    "top-storage.export.participant-role": "tests/kafka/test_group.py",
    "consume --group annals-migration --topics"
    " top-storage.export.migration.product-instance": "tests/kafka/test_group.py",
    "embedded start": _EMBEDDED,
    "embedded status": _EMBEDDED,
    "embedded stop": _EMBEDDED,
    "runserver": "tests/system/test_web.py",
    "simulate": _SIMULATE,
    "simulate --rps 0 --applications 26000": _SIMULATE,
    "simulate --days 30 --applications 500": _SIMULATE,
}
# Commands that end with something else than 0 there: code, and a part of what is said.
ENDS: Final = {
    "partitions adopt 2026-08-21 --entity product-instance --why"
    " 'database restored from the backup of 2026-11-20'": (2, "the database knows these rows"),
    # The line is two: the first restored all kinds.
    "partitions restore 2026-08-21 --entity product-instance": (2, "is there and has 1 row"),
    "--version": (0, __version__),
}
# Commands that are run when all others were.
AT_THE_END: Final = (
    "check --deploy --database default",
    "partitions forget 2026-08-21 --entity product-instance --why"
    " 'order 7 of the data protection officer'",
)
