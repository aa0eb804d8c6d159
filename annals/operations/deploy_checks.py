"""Checks for `annals check --deploy` what an installation still lacks.

The warnings have the order of docs/first-hour.md. With `--database default` it also asks PostgreSQL
and the brokers, until one of them does not answer.
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
MIN_DIFFERENT_CHARACTERS: Final = 10  # how many different characters a key needs

_SELECT_HAS_WAL_ARCHIVE = """
SELECT current_setting('archive_mode') <> 'off' OR EXISTS (SELECT FROM pg_replication_slots)
    OR EXISTS (SELECT FROM pg_stat_replication)
"""


def check_first_hour(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Return warnings from annals.W100 on, in the order in which to do what they ask for.

    `databases` are the names of `check --database`. Without one the servers are not asked.
    """
    messages: list[CheckMessage] = list(_check_settings())
    if env.UNASKED_DEMO in os.environ:
        return messages  # the servers of a demo need no checks
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
        messages += _check_servers()
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
            "The demo is on: logins that everybody knows, as admin with the password admin, open "
            "the screens and the API.",
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
            "ANNALS_SECRET_KEY is not set, so that no host knows the sessions and masks of "
            "another; or it can be guessed.",
            "Give all web processes the same 50 random characters.",
        )
    if "*" in annals_settings.allowed_hosts or set(annals_settings.allowed_hosts) <= set(
        env.LOOPBACK
    ):
        yield _make_warning(
            104,
            "ANNALS_ALLOWED_HOSTS is every host, or this machine only: browsers of others get 400.",
            "Name the host of the address that people will use, as annals.bank.example.",
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
            "ANNALS_TRUSTED_PROXIES is not set: in the journal and the logs everybody has the "
            "address of the proxy.",
            "Name the addresses of the proxy itself, as 10.1.2.3.",
        )
    if networks := client_address.find_wide_networks(settings.TRUSTED_PROXIES):
        yield _make_warning(
            108,
            f"ANNALS_TRUSTED_PROXIES has {', '.join(networks)}: whoever is in there chooses the "
            "address that the journal and the logs have of them.",
            "Name the addresses of the proxies only.",
        )
    if not annals_settings.metrics_token:
        yield _make_warning(
            106,
            "ANNALS_METRICS_TOKEN is not set: /metrics answers nobody.",
            "Set it, and give Prometheus the same token.",
        )


def _check_servers() -> Iterator[CheckMessage]:
    """Check the database and the brokers.

    Raises:
        DatabaseError: The database does not answer.
    """
    if (mismatch := health.explain_schema_mismatch()) is not None:
        yield _make_warning(111, mismatch, "annals migrate, as the owner of the tables")
        return
    yield from _check_logins()
    yield from _check_topics()
    yield from _check_people()
    connection.ensure_connection()
    if complaint := forms.explain_wait(forms.find_unready(connection.connection)):
        hint = "End them once this release has taken their place (docs/upgrade.md)."
        yield Warning(f"{complaint[:1].upper()}{complaint[1:]}.", hint=hint, id="annals.W122")
    for job in list_jobs():
        if job.late or job.failed:
            text = f"`{job.command}` has not run in time, or has failed."
            yield _make_warning(
                119,
                text,
                "Run it by its timer (deploy/systemd), or from cron; the page Operations has "
                "its last result.",
            )
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_HAS_WAL_ARCHIVE)
        archives = cursor.fetchone() == (True,)
    if not archives:
        yield _make_warning(
            121,
            "PostgreSQL archives no WAL and has no standby: a restore loses what came after the "
            "last dump.",
            "docs/backup.md has a setup that was tried.",
        )


def _check_logins() -> Iterator[Warning]:
    roles = grants.list_granted_roles()
    for number, role, name in ((112, WEB, "web"), (113, CONSUMER, "consumer")):
        if role not in roles:
            yield _make_warning(
                number,
                f"No login has the rights of the {name}: it would run with those of the owner.",
                f"annals grants --apply --login {name} {name}_login FILE_WITH_ITS_PASSWORD",
            )
    for number, name, command in (
        (114, "partitions", "annals partitions maintain"),
        (115, "rights", "annals grants --apply"),
    ):
        if (answer := health.CHECKS[name]()) != health.OK:
            hint = f"{command}, as the owner of the tables"
            yield _make_warning(number, f"/readyz says of the {name}: {answer}.", hint)


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
            f"Of {pluralize(len(topics), 'topic')}, this login sees "
            f"{len(topics) - len(absent)}. Not "
            "there, or not for this login: "
            f"{', '.join(absent)}.",
            "Create them, or give the login READ and DESCRIBE (docs/kafka.md).",
        )
    if absent_topics := [topic for topic in migration if topic not in visible_topics]:
        yield Info(
            f"{pluralize(len(absent_topics), 'migration topic')} not there, or not for this login: "
            f"{', '.join(absent_topics)}.",
            hint="That is right where nothing is migrated: a topic that does not exist holds "
            f"nothing back. ({DOCS_PAGE})",
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
