"""A rule of ANNALS_NEED_TO_KNOW that asks the database through Django."""

from django.db import connection

from history.masking.reader import Caller
from history.need_to_know import Application


def may_open(user: Caller, application: Application) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")
    return True
