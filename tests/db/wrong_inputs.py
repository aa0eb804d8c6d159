"""Wrong inputs of commands: the arguments, the environment, and what the one-sentence error must
contain.

In arguments and in values of environment variables, test_wrong_inputs.py replaces placeholders:
{port} is the port of PostgreSQL, {owner} is the URL of the database, {user} is the login in this
URL, {dir} is a folder with the files of FILES, {read_only} is a disk that is mounted read-only,
{full} is a full disk, {busy} is a port that is in use, and {silent} is a port at which connections
get no answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

SECRET: Final = "S3cret-Passw0rd-of-nobody"
FILES: Final[Mapping[str, bytes]] = {
    "binary": b"\xff\xfe\x00\x01",
    "empty": b"",
    "broken.json": b"{ no",
    "list.json": b"[1]",
    "type.toml": b'provider = "x"',
    "broken.toml": b"provider = [",
    "deep.toml": b"provider = " + b"[" * 100_000,
    "line.properties": f"sasl.password {SECRET}\n".encode(),
    "latin.csv": "login,full_name,kind\na,Прыгунов,person\n".encode("cp1251"),
}
TOPIC: Final = "top-storage.export.product-car"
OLD: Final = {"ANNALS_FALLBACK_URL": "http://127.0.0.1:1", "ANNALS_FALLBACK_UNTIL": "2100-01-01"}
LIST: Final = "partitions list"
SOON: Final = {"ingest.kafka.producer.TIMEOUT_SECONDS": 0.5}


@dataclass(frozen=True)
class WrongInput:
    """One run of a command with a wrong input."""

    title: str
    words: tuple[str, ...]
    texts: tuple[str, ...]  # which the error must contain
    code: int  # the exit code
    env: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)


def wrong(
    title: str,
    words: str,
    *texts: str,
    code: int = 1,
    env: Mapping[str, str] | None = None,
    constants: Mapping[str, float] | None = None,
) -> WrongInput:
    """Return a wrong input of a command.

    Args:
        words: The arguments, separated by spaces. Two quotes ('') are an empty argument.
        texts: The texts that the error must contain.
        code: The exit code.
        env: Environment variables that differ from the right ones.
        constants: New values for constants of modules, by the dotted path of the constant.
    """
    arguments = tuple("" if word == "''" else word for word in words.split())
    return WrongInput(title, arguments, texts, code, env or {}, constants or {})


def database(
    title: str, url: str, *texts: str, words: str = "partitions list", code: int = 2
) -> WrongInput:
    return wrong(title, words, *texts, "DATABASE_URL", code=code, env={"DATABASE_URL": url})


def setting(
    name: str, value: str, *texts: str, words: str = "partitions list", code: int = 1
) -> WrongInput:
    return wrong(f"{name}={value}", words, name, *texts, code=code, env={name: value})


def usage(words: str, *texts: str, title: str = "") -> WrongInput:
    return wrong(title or words, words, *texts, code=2)


USER: Final = f"somebody:{SECRET}"
URL: Final = f"postgresql://{USER}@"
INPUTS: Final = (
    # PostgreSQL
    database("no server", f"{URL}127.0.0.1:1/annals", "no PostgreSQL listens at 127.0.0.1:1"),
    database("no such host", f"{URL}no-such.invalid/annals", "no-such.invalid"),
    database("two hosts", f"{URL}127.0.0.1:1,127.0.0.1:2/annals", "127.0.0.1:1, 127.0.0.1:2"),
    database(
        "no answer",
        f"{URL}127.0.0.1:{{silent}}/annals?connect_timeout=2",
        "127.0.0.1:{silent} did not answer within 2 seconds",
    ),
    database(
        "wrong password",
        f"postgresql://{{user}}:{SECRET}@127.0.0.1:{{port}}/annals",
        "127.0.0.1:{port} refuses the login {user}",
    ),
    database("no such login", f"{URL}127.0.0.1:{{port}}/annals", "refuses the login somebody"),
    database("no such database", "{owner}_nowhere", "no database", "_nowhere"),
    database("TLS where none is", "{owner}?sslmode=require", "SSL"),
    database(
        "no file of authorities",
        "{owner}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem",
        "/nowhere/ca.pem",
        code=1,
    ),
    database("a port in letters", f"{URL}127.0.0.1:port/annals", code=1),
    database("no server: ledger", f"{URL}127.0.0.1:1/a", "127.0.0.1:1", words="ledger", code=1),
    database("no server: migrate", f"{URL}127.0.0.1:1/a", "127.0.0.1:1", words="migrate", code=1),
    database(
        "wrong password: consume",
        f"{URL}127.0.0.1:{{port}}/annals",
        "refuses the login",
        words="consume",
        code=1,
    ),
    wrong("no tables", LIST, "migrate", code=2, env={"DATABASE_URL": "{empty_database}"}),
    wrong(
        "no rights",
        "capacity",
        "login wrong_norights_",
        "may not do that",
        env={"DATABASE_URL": "{no_rights}"},
    ),
    # Kafka
    wrong(
        "no broker",
        "simulate --messages 1",
        "no broker listens at 127.0.0.1:1",
        "KAFKA_BOOTSTRAP_SERVERS",
        constants=SOON,
    ),
    wrong(
        "no such host of a broker",
        "simulate --messages 1",
        "no-such.invalid:9092",
        env={"KAFKA_BOOTSTRAP_SERVERS": "no-such.invalid:9092"},
        constants=SOON,
    ),
    setting("KAFKA_BOOTSTRAP_SERVERS", "host:port", "HOST:PORT"),
    setting("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:99999", "65535"),
    setting("KAFKA_BOOTSTRAP_SERVERS", "http://127.0.0.1:9092/x", "HOST:PORT"),
    setting("KAFKA_BOOTSTRAP_SERVERS", f"sasl_ssl://{USER}@127.0.0.1:9092", "ANNALS_KAFKA_SASL_*"),
    setting("KAFKA_BOOTSTRAP_SERVERS", f"127.0.0.1:9092?password={SECRET}", "HOST:PORT"),
    setting("KAFKA_BOOTSTRAP_SERVERS", f"{USER},x@127.0.0.1:9092", "HOST:PORT"),
    wrong(
        "no such protocol",
        "ledger",
        "LOUD",
        "ANNALS_KAFKA_*",
        env={"ANNALS_KAFKA_SECURITY_PROTOCOL": "LOUD"},
    ),
    wrong(
        "no such setting of librdkafka",
        "simulate --messages 1",
        "nonsense",
        "ANNALS_KAFKA_*",
        env={"ANNALS_KAFKA_NONSENSE": SECRET},
    ),
    wrong(
        "a number in letters",
        "simulate --messages 1",
        "message.timeout.ms",
        "ANNALS_KAFKA_*",
        env={"ANNALS_KAFKA_MESSAGE_TIMEOUT_MS": "soon"},
    ),
    wrong(
        "no file of authorities of Kafka",
        "simulate --messages 1",
        "ssl.ca.location is /nowhere",
        env={"ANNALS_KAFKA_SECURITY_PROTOCOL": "SSL", "ANNALS_KAFKA_SSL_CA_LOCATION": "/nowhere"},
    ),
    setting("ANNALS_KAFKA_GROUP_ID", "x", "ANNALS_CONSUMER_GROUP"),
    # Settings
    setting(
        "ANNALS_ARCHIVE_URL",
        f"s3://AKIA:{SECRET}@bucket/a?nonsense=1",
        words="partitions verify --archive",
        code=2,
    ),
    setting("ANNALS_SECRET_KEY", SECRET, "length >= 32"),
    setting("ANNALS_TRUSTED_PROXIES", "nohost"),
    # Files
    *(
        setting(name, f"{{dir}}/{file}", sentence, f"/{file}")
        for name in ("ANNALS_LIBRDKAFKA_FILE", "ANNALS_OIDC_FILE")
        for file, sentence in (
            ("nowhere", "No such file"),
            ("folder", "Is a directory"),
            ("binary", "UTF-8"),
        )
    ),
    setting("ANNALS_LIBRDKAFKA_FILE", "{dir}/line.properties", "line 1"),
    setting("ANNALS_OIDC_FILE", "{dir}/empty", "missing required field `provider`"),
    setting("ANNALS_OIDC_FILE", "{dir}/deep.toml", "TOML"),
    setting("ANNALS_OIDC_FILE", "{dir}/broken.toml", "TOML"),
    setting("ANNALS_OIDC_FILE", "{dir}/type.toml", "Expected a list, got a text"),
    setting("ANNALS_OIDC_FILE", "{dir}/list.json", "Expected an object, got a list"),
    wrong("people: no file", "people import {dir}/nowhere", "No such file", "/nowhere"),
    wrong("people: a folder", "people import {dir}/folder", "Is a directory"),
    wrong("people: Latin", "people import {dir}/latin.csv", "UTF-8"),
    wrong("labels: broken", "labels load {dir}/broken.json", "Expected a list"),
    wrong(
        "applications: no file",
        "compare-old --applications {dir}/nowhere",
        "/nowhere",
        code=2,
        env=OLD,
    ),
    wrong("compare-old alone", "compare-old", "ANNALS_FALLBACK_URL", code=2),
    wrong(
        "compare-old: over",
        "compare-old",
        "ANNALS_FALLBACK_UNTIL",
        code=2,
        env={**OLD, "ANNALS_FALLBACK_UNTIL": "2020-01-01"},
    ),
    wrong("grants: not applied", "grants --login web x {dir}/empty", "--login needs --apply"),
    wrong("grants: no password", "grants --apply --login web x {dir}/empty", "is empty"),
    wrong("grants: no file", "grants --apply --login web x {dir}/nowhere", "/nowhere"),
    wrong("grants: no such role", "grants --apply --login admin x {dir}/empty", "web or consumer"),
    # Disks and ports
    # Only a process that needs a secret key creates one in ANNALS_HOME.
    wrong(
        "home: read-only",
        "runserver --noreload",
        "ANNALS_HOME",
        "Read-only",
        env={"ANNALS_HOME": "{read_only}/home", "ANNALS_SECRET_KEY": ""},
    ),
    wrong(
        "home: a file",
        "runserver --noreload",
        "ANNALS_HOME",
        env={"ANNALS_HOME": "{dir}/empty", "ANNALS_SECRET_KEY": ""},
    ),
    wrong(
        "export: read-only",
        "export --entity product-car --output {read_only}/x",
        "Read-only",
        code=2,
    ),
    wrong(
        "export: a file", "export --entity product-car --output {dir}/empty", "{dir}/empty", code=2
    ),
    wrong("restore: no archive", "partitions restore 2026-01-01", "ANNALS_ARCHIVE_URL", code=2),
    wrong(
        "a busy port",
        "consume --metrics-port {busy} --metrics-address 127.0.0.1",
        "{busy}",
        "in use",
    ),
    wrong("no such address", "consume --metrics-port 9 --metrics-address no.invalid", "no.invalid"),
    usage("consume --metrics-port 99999", "1 to 65535"),
    # Days
    usage("partitions seal 2026-02-30", "'2026-02-30' is not a day"),
    usage("export --entity product-car --from 30.02.2026", "--from", "is not a day"),
    usage("export --entity product-car --from 9999-12-31", "is not a day"),
    usage("export --entity product-car --from 2026-11-20 --to 2026-11-10", "must be before"),
    usage("export --entity product-car --from 2099-01-01 --to 2099-01-05", "has no day"),
    usage("partitions verify 2019-01-01", "2019-01-01 has no seal"),
    usage("partitions verify --archive", "ANNALS_ARCHIVE_URL"),
    # Names that do not exist
    usage("export --entity product-house", "product-house", "product-car"),
    usage("consume --topics nonsense", "topic nonsense", "the declared topics are top-storage"),
    usage("consume --topics top-storage.export.product-cra", TOPIC),
    usage("quarantine list --reason bad_jsn", "invalid choice: 'bad_jsn'"),
    wrong(
        "quarantine: topic", "quarantine list --topic nonsense", "topic 'nonsense' does not exist"
    ),
    wrong("retry: no such id", "quarantine retry 999999", "not in quarantine: 999999"),
    wrong("discard: all", "quarantine discard --why x", "--topic"),
    wrong("discard: no reason", "quarantine discard --reason not_json --why ''", "--why"),
    wrong("show: no such id", "quarantine show 999999", "no message 999999"),
    usage("quarantine show 99999999999999999999999", "whole number"),
    wrong("resume: topic", "quarantine resume nonsense", "topic 'nonsense' does not exist"),
    wrong("acknowledge: no reason", f"ledger acknowledge {TOPIC} --why ''", "--why"),
    usage(f"ledger acknowledge {TOPIC} --partition -1 --why x", "--partition"),
    wrong("breakglass: nobody", "breakglass nobody --remove", "nobody"),
    wrong("capacity: no rows", "capacity", "--rps"),
    # Numbers
    wrong("trace: half", "trace --entity product-car --id x", "--version"),
    usage("trace --entity product-car --id x --version -1", "--version"),
    usage(f"trace --topic {TOPIC} --partition 99999999999 --offset 0", "--partition"),
    usage(f"trace --topic {TOPIC} --partition 0 --offset {2**63 - 1}", "--offset"),
    usage("gaps heal --limit x", "--limit"),
    usage("consume --until-idle nan", "--until-idle"),
    usage("consume --group ''", "--group"),
    usage("simulate --rps -1", "--rps"),
    usage("simulate --days 99999999 --messages 1", "--days"),
    usage("partitions verify --archive --seconds -1", "--seconds"),
    usage("partitions", "ACTION"),
)
