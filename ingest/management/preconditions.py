"""Checks that a command makes before it reads or stores messages.

The tables must be those of this release, and the settings must name a broker.
"""

import logging

import psycopg
from django.conf import settings
from django.core.management.base import CommandError

from history.common import schema
from history.common.database_errors import explain_no_connection, is_refused
from history.common.error_text import describe
from history.store.database import forms, session
from ingest.store.session import open_connection

logger = logging.getLogger(__name__)


def refuse_incompatible_tables() -> None:
    """Raise an error if the tables belong to another release, or PostgreSQL refuses the login.

    If the database does not answer, no error is raised: the consumer will wait until it answers.

    Raises:
        CommandError: This release cannot work with the tables. The message says why.
        psycopg.Error: PostgreSQL refuses the login.
    """
    try:
        with open_connection("annals-check") as connection:
            complaint = session.explain_dropped_settings(connection) or schema.explain_tables(
                connection.cursor()
            )
    except psycopg.errors.InsufficientPrivilege:
        raise CommandError(
            "The database login of this consumer may not read which migrations are applied: its "
            "rights are those of an earlier release. Run `annals migrate` and `annals grants "
            "--apply` as the owner of the tables, then start this process again."
        ) from None
    except forms.NewerFormError as error:
        raise CommandError(f"{error}.") from None
    except psycopg.Error as error:
        if is_refused(error):
            raise
        reason = explain_no_connection(error) or describe(error)
        logger.warning("%s. The consumer waits and goes on trying", reason)
        return
    if complaint is not None:
        raise CommandError(complaint)


def load_broker_settings() -> tuple[str, dict[str, str]]:
    """Return the bootstrap servers, and the librdkafka settings from the environment."""
    client_settings = dict(settings.KAFKA)
    bootstrap = client_settings.pop("bootstrap.servers", None)
    if not bootstrap:
        raise CommandError(
            "No broker is named, and the embedded one does not run. Set KAFKA_BOOTSTRAP_SERVERS, "
            "as host:port,host:port, or start the embedded broker: annals embedded start"
        )
    return str(bootstrap), client_settings
