"""Finds what an installation still lacks, for `annals check --deploy`.

The warnings have the order of docs/first-hour.md. With `--database default`, PostgreSQL and the
brokers are checked too.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, Info, Warning
from django.db import Error as DatabaseError
from django.db import connection

from annals.access import client_address, grants
from annals.access.grants import CONSUMER, WEB
from annals.configuration import env
from annals.operations import health
from annals.operations.jobs import list_jobs
from history.common.error_text import describe
from history.common.text_tables import pluralize
from history.kinds.entities import ENTITIES
from history.store.database import forms
from ingest.kafka.brokers import Brokers
from ingest.kafka.client import UnreachableError

DOCS_PAGE: Final = "docs/first-hour.md"
MIN_DIFFERENT_CHARACTERS: Final = 10  # how many different characters a secret key must have

_SELECT_HAS_WAL_ARCHIVE = """
SELECT current_setting('archive_mode') <> 'off' OR EXISTS (SELECT FROM pg_replication_slots)
    OR EXISTS (SELECT FROM pg_stat_replication)
"""


def check_first_hour(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Return a warning for each step of docs/first-hour.md that is still to be done.

    The warnings are in the order of these steps. The ids of the warnings start at annals.W100.

    Args:
        databases: The names given by `check --database`. None: do not ask PostgreSQL and the
            brokers.
    """
    messages: list[CheckMessage] = list(_check_settings())
    if env.UNASKED_DEMO in os.environ:
        return messages  # the servers of a demo do not need checks
    if databases is None:
        messages.append(
            Info(
                "The database and the brokers were not asked.",
                hint="annals check --deploy --database default",
                id="annals.I100",
            )
        )
        return messages
    try:
        messages += _check_running_installation()
    except DatabaseError as error:
        messages.append(
            _make_warning(
                110,
                f"PostgreSQL does not answer as it should: {describe(error)}.",
                "Check DATABASE_URL, the network and pg_hba.conf, then run this again.",
            )
        )
    return messages


def _check_settings() -> Iterator[Warning]:
    annals_settings = settings.ANNALS
    if annals_settings.demo:
        yield _make_warning(
            100,
            "The demo is on: anybody can open the screens and the API with its well-known logins, "
            "such as admin with the password admin.",
            "Set DATABASE_URL and unset ANNALS_DEMO; then annals migrate switches these logins off",
        )
    if annals_settings.database_url is None or env.UNASKED_DEMO in os.environ:
        yield _make_warning(
            101,
            "DATABASE_URL is not set: Annals uses the embedded PostgreSQL, which nobody backs up.",
            "Create the owner and the database, and name them: DATABASE_URL=postgresql://...",
        )
    if annals_settings.kafka_bootstrap_servers is None:
        yield _make_warning(
            102,
            "KAFKA_BOOTSTRAP_SERVERS is not set: the consumer reads the embedded broker.",
            "Name your brokers, as kafka-1:9092,kafka-2:9092.",
        )
    yield from _check_web_settings()


def _check_web_settings() -> Iterator[Warning]:
    annals_settings = settings.ANNALS
    if len(set(annals_settings.secret_key or "")) < MIN_DIFFERENT_CHARACTERS:
        yield _make_warning(
            103,
            "ANNALS_SECRET_KEY is not set, or can be guessed. Unset, each host generates its own, "
            "and does not accept the sessions and masks of another.",
            "Give all web processes the same 50 random characters.",
        )
    if "*" in annals_settings.allowed_hosts or set(annals_settings.allowed_hosts) <= set(
        env.LOOPBACK
    ):
        yield _make_warning(
            104,
            "ANNALS_ALLOWED_HOSTS allows every host, or this machine only. In the latter case "
            "browsers on other machines get 400.",
            "Name the host of the address that people will use, such as annals.bank.example.",
        )
    if not annals_settings.https:
        yield _make_warning(
            105,
            "ANNALS_HTTPS is not set: cookies of a log-in travel over plain HTTP.",
            "Put a proxy with TLS in front (deploy/nginx/annals.conf), and set ANNALS_HTTPS=true.",
        )
    if annals_settings.https and not settings.TRUSTED_PROXIES:
        yield _make_warning(
            107,
            "ANNALS_TRUSTED_PROXIES is not set: the journal and the logs have the address of the "
            "proxy instead of the client's.",
            "Name the addresses of the proxies, such as 10.1.2.3.",
        )
    if networks := client_address.find_wide_networks(settings.TRUSTED_PROXIES):
        yield _make_warning(
            108,
            f"ANNALS_TRUSTED_PROXIES has {', '.join(networks)}: every client in these "
            "networks can choose the address that the journal and the logs record.",
            "Name the addresses of the proxies only.",
        )
    if not annals_settings.metrics_token:
        yield _make_warning(
            106,
            "ANNALS_METRICS_TOKEN is not set: /metrics answers nobody.",
            "Set it, and give Prometheus the same token.",
        )


def _check_running_installation() -> Iterator[CheckMessage]:
    """Yield a warning for each problem that PostgreSQL or the brokers show.

    If the schema does not fit this release, the only warning is about the schema.

    Raises:
        DatabaseError: PostgreSQL does not answer.
    """
    if (mismatch := health.explain_schema_mismatch()) is not None:
        yield _make_warning(111, mismatch, "annals migrate, as the owner of the tables")
        return
    yield from _check_logins()
    yield from _check_topics()
    yield from _check_people()
    connection.ensure_connection()
    if complaint := forms.explain_wait(forms.find_unready(connection.connection)):
        yield _make_warning(
            122,
            f"{complaint[:1].upper()}{complaint[1:]}.",
            "End these sessions once this release runs in their place, see docs/upgrade.md.",
        )
    for job in list_jobs():
        if job.late or job.failed:
            yield _make_warning(
                119,
                f"`{job.command}` has not run in time, or has failed.",
                "Run it by its timer (deploy/systemd) or from cron. The page Operations has its "
                "last result.",
            )
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_HAS_WAL_ARCHIVE)
        archives = cursor.fetchone() == (True,)
    if not archives:
        yield _make_warning(
            121,
            "PostgreSQL does not archive WAL and has no standby: a restore from a dump loses "
            "everything after the dump.",
            "docs/backup.md describes a tested setup.",
        )


def _check_logins() -> Iterator[Warning]:
    roles = grants.list_granted_roles()
    for number, role, name in ((112, WEB, "web"), (113, CONSUMER, "consumer")):
        if role not in roles:
            yield _make_warning(
                number,
                f"No login has the rights of the {name}, so it would run with the rights of the "
                "tables' owner.",
                f"annals grants --apply --login {name} {name}_login FILE_WITH_ITS_PASSWORD",
            )
    for number, name, command in (
        (114, "partitions", "annals partitions maintain"),
        (115, "rights", "annals grants --apply"),
    ):
        if (answer := health.CHECKS[name]()) != health.OK:
            hint = f"{command}, as the owner of the tables"
            yield _make_warning(number, f"/readyz reports for `{name}`: {answer}.", hint)


def _check_topics() -> Iterator[CheckMessage]:
    servers = dict(settings.KAFKA)
    bootstrap = str(servers.pop("bootstrap.servers", ""))
    if not bootstrap:
        return
    topics = [entity.topics[0] for entity in ENTITIES]
    migration = [topic for entity in ENTITIES for topic in entity.topics[1:]]
    try:
        partitions = Brokers(bootstrap, servers).list_partitions([*topics, *migration])
        visible_topics = {topic for topic, _ in partitions}
    except UnreachableError as error:
        yield _make_warning(
            116,
            f"The brokers {bootstrap} do not answer: {error}.",
            "Check KAFKA_BOOTSTRAP_SERVERS, and ANNALS_KAFKA_* for TLS and SASL (docs/kafka.md).",
        )
        return
    if absent := [topic for topic in topics if topic not in visible_topics]:
        yield _make_warning(
            117,
            f"This login sees {len(topics) - len(absent)} of {pluralize(len(topics), 'topic')}. "
            f"These do not exist, or the login may not see them: {', '.join(absent)}.",
            "Create the topics, or give the login READ and DESCRIBE (docs/kafka.md).",
        )
    if absent_topics := [topic for topic in migration if topic not in visible_topics]:
        yield Info(
            f"This login does not see {pluralize(len(absent_topics), 'migration topic')}: "
            f"{', '.join(absent_topics)}.",
            hint="This is right if nothing is migrated: Annals does not wait for a topic that does "
            f"not exist. ({DOCS_PAGE})",
            id="annals.I117",
        )


def _check_people() -> Iterator[Warning]:
    if settings.OIDC_PROVIDERS or User.objects.filter(is_superuser=True, is_active=True).exists():
        return
    yield _make_warning(
        118,
        "Nobody can log in: no identity provider is declared, and there is no break-glass login.",
        "annals breakglass NAME makes the first login; docs/access.md declares a provider.",
    )


def _make_warning(number: int, text: str, hint: str) -> Warning:
    return Warning(text, hint=f"{hint} ({DOCS_PAGE})", id=f"annals.W{number}")
