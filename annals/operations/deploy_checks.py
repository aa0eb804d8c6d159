"""`annals check --deploy`: what an installation still lacks, in the order of its first hour. With
`--database default` the servers are asked, up to the first that does not answer."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, Info, Warning
from django.db import Error as DatabaseError
from django.db import connection

from annals import env
from annals.access import address, grants
from annals.access.grants import CONSUMER, WEB
from annals.observe import health
from annals.operations.jobs import jobs
from history.base.error_text import describe
from history.base.table import counted
from history.database import forms
from history.entities import ENTITIES
from ingest.source.brokers import Brokers
from ingest.source.client import Unreachable

PAGE: Final = "docs/first-hour.md"
FEW_CHARACTERS: Final = 10  # different ones in a key

_ARCHIVES = """
SELECT current_setting('archive_mode') <> 'off' OR EXISTS (SELECT FROM pg_replication_slots)
    OR EXISTS (SELECT FROM pg_stat_replication)
"""


def first_hour(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warnings annals.W100 and on, in the order in which one does what they ask for. databases: as
    `check --database` names them."""
    found: list[CheckMessage] = list(_of_settings())
    if env.UNASKED_DEMO in os.environ:
        return found  # its servers are those of the demo
    if databases is None:
        found.append(
            Info(
                "The database and the brokers were not asked.",
                hint="annals check --deploy --database default",
                id="annals.I100",
            )
        )
        return found
    try:
        found += _of_servers()
    except DatabaseError as error:
        found.append(
            _warning(
                110,
                f"PostgreSQL does not answer as it should: {describe(error)}.",
                "Check DATABASE_URL, the network and pg_hba.conf, then run this again.",
            )
        )
    return found


def _of_settings() -> Iterator[Warning]:
    given = settings.ANNALS
    if given.demo:
        yield _warning(
            100,
            "The demo is on: logins that everybody knows, as admin with the password admin, open "
            "the screens and the API.",
            "Set DATABASE_URL and unset ANNALS_DEMO; then annals migrate switches these logins off",
        )
    if given.database_url is None or env.UNASKED_DEMO in os.environ:
        yield _warning(
            101,
            "DATABASE_URL is not set: Annals uses the embedded PostgreSQL, which nobody backs up.",
            "Create the owner and the database, and name them: DATABASE_URL=postgresql://...",
        )
    if given.kafka_bootstrap_servers is None:
        yield _warning(
            102,
            "KAFKA_BOOTSTRAP_SERVERS is not set: the consumer reads the embedded broker.",
            "Name your brokers, as kafka-1:9092,kafka-2:9092.",
        )
    yield from _of_web()


def _of_web() -> Iterator[Warning]:
    given = settings.ANNALS
    if len(set(given.secret_key or "")) < FEW_CHARACTERS:
        yield _warning(
            103,
            "ANNALS_SECRET_KEY is not set, so that no host knows the sessions and masks of "
            "another; or it can be guessed.",
            "Give all web processes the same 50 random characters.",
        )
    if "*" in given.allowed_hosts or set(given.allowed_hosts) <= set(env.LOOPBACK):
        yield _warning(
            104,
            "ANNALS_ALLOWED_HOSTS is every host, or this machine only: browsers of others get 400.",
            "Name the host of the address that people will use, as annals.bank.example.",
        )
    if not given.https:
        yield _warning(
            105,
            "ANNALS_HTTPS is not set: cookies of a log-in travel over plain HTTP.",
            "Put a proxy with TLS in front (deploy/nginx/annals.conf), and set ANNALS_HTTPS=true.",
        )
    if given.https and not settings.TRUSTED_PROXIES:
        yield _warning(
            107,
            "ANNALS_TRUSTED_PROXIES is not set: in the journal and the logs everybody has the "
            "address of the proxy.",
            "Name the addresses of the proxy itself, as 10.1.2.3.",
        )
    if found := address.wide(settings.TRUSTED_PROXIES):
        yield _warning(
            108,
            f"ANNALS_TRUSTED_PROXIES has {', '.join(found)}: whoever is in there chooses the "
            "address that the journal and the logs have of them.",
            "Name the addresses of the proxies only.",
        )
    if not given.metrics_token:
        yield _warning(
            106,
            "ANNALS_METRICS_TOKEN is not set: /metrics answers nobody.",
            "Set it, and give Prometheus the same token.",
        )


def _of_servers() -> Iterator[CheckMessage]:
    """Raises DatabaseError."""
    if (why := health.complaint()) is not None:
        yield _warning(111, why, "annals migrate, as the owner of the tables")
        return
    yield from _logins()
    yield from _topics()
    yield from _people()
    connection.ensure_connection()
    if waits := forms.explain_wait(forms.find_unready(connection.connection)):
        hint = "End them once this release has taken their place (docs/upgrade.md)."
        yield Warning(f"{waits[:1].upper()}{waits[1:]}.", hint=hint, id="annals.W122")
    for job in jobs():
        if job.late or job.failed:
            text = f"`{job.command}` has not run in time, or has failed."
            yield _warning(
                119,
                text,
                "Run it by its timer (deploy/systemd), or from cron; the page Operations has "
                "its last result.",
            )
    with connection.cursor() as cursor:
        cursor.execute(_ARCHIVES)
        archives = cursor.fetchone() == (True,)
    if not archives:
        yield _warning(
            121,
            "PostgreSQL archives no WAL and has no standby: a restore loses what came after the "
            "last dump.",
            "docs/backup.md has a setup that was tried.",
        )


def _logins() -> Iterator[Warning]:
    roles = grants.roles()
    for number, role, name in ((112, WEB, "web"), (113, CONSUMER, "consumer")):
        if role not in roles:
            yield _warning(
                number,
                f"No login has the rights of the {name}: it would run with those of the owner.",
                f"annals grants --apply --login {name} {name}_login FILE_WITH_ITS_PASSWORD",
            )
    for number, name, command in (
        (114, "partitions", "annals partitions maintain"),
        (115, "rights", "annals grants --apply"),
    ):
        if (said := health.CHECKS[name]()) != health.OK:
            hint = f"{command}, as the owner of the tables"
            yield _warning(number, f"/readyz says of the {name}: {said}.", hint)


def _topics() -> Iterator[CheckMessage]:
    servers = dict(settings.KAFKA)
    bootstrap = str(servers.pop("bootstrap.servers", ""))
    if not bootstrap:
        return
    wanted = [entity.topics[0] for entity in ENTITIES]
    migration = [topic for entity in ENTITIES for topic in entity.topics[1:]]
    try:
        asked = Brokers(bootstrap, servers).list_partitions([*wanted, *migration])
        there = {topic for topic, _ in asked}
    except Unreachable as error:
        yield _warning(
            116,
            f"The brokers {bootstrap} do not answer: {error}.",
            "Check KAFKA_BOOTSTRAP_SERVERS, and ANNALS_KAFKA_* for TLS and SASL (docs/kafka.md).",
        )
        return
    if absent := [topic for topic in wanted if topic not in there]:
        yield _warning(
            117,
            f"Of {counted(len(wanted), 'topic')}, this login sees {len(wanted) - len(absent)}. Not "
            "there, or not for this login: "
            f"{', '.join(absent)}.",
            "Create them, or give the login READ and DESCRIBE (docs/kafka.md).",
        )
    if without := [topic for topic in migration if topic not in there]:
        yield Info(
            f"{counted(len(without), 'migration topic')} not there, or not for this login: "
            f"{', '.join(without)}.",
            hint="That is right where nothing is migrated: a topic that does not exist holds "
            f"nothing back. ({PAGE})",
            id="annals.I117",
        )


def _people() -> Iterator[Warning]:
    if settings.OIDC_PROVIDERS or User.objects.filter(is_superuser=True, is_active=True).exists():
        return
    yield _warning(
        118,
        "Nobody can log in: no identity provider is declared, and there is no break-glass login.",
        "annals breakglass NAME makes the first login; docs/access.md declares a provider.",
    )


def _warning(number: int, text: str, hint: str) -> Warning:
    return Warning(text, hint=f"{hint} ({PAGE})", id=f"annals.W{number}")
