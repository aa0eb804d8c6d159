"""The WSGI application."""

import gc
import os
import sys

from django.core.wsgi import get_wsgi_application

from annals.start import prepare

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
_asked = os.environ.get("DATABASE_URL") or "ANNALS_DEMO" in os.environ
if not _asked and "annals.server" not in sys.modules:
    sys.exit(
        "annals: DATABASE_URL is unset, which starts the demo with its well-known logins, and this "
        "server does not say who can reach it. Set DATABASE_URL for production, or start gunicorn "
        "with --config python:annals.server."
    )
prepare(["runserver"])
application = get_wsgi_application()

from functools import partial  # noqa: E402 - all of them need Django's settings
from importlib import import_module  # noqa: E402

from django.conf import settings  # noqa: E402
from django.db import connections  # noqa: E402

from annals.access.grants import LIMITS, WEB, of_web  # noqa: E402
from annals.handling import Utf8Request  # noqa: E402
from history.database import privileges, session  # noqa: E402
from ingest.store.session import open_connection  # noqa: E402

# Only statements of the web have a limit: commands may take long. And they look up a few rows in
# each day, for which a server that expects slow jumps on its disk would read small days whole.
_options = connections["default"].settings_dict["OPTIONS"]
_limit_ms = settings.ANNALS.request_seconds * 1000
_options["options"] = " ".join(
    (
        session.options(LIMITS[WEB].settings),
        _options["options"],
        session.options({"statement_timeout": f"{_limit_ms}", "random_page_cost": "1.1"}),
    )
)
if not settings.ANNALS.demo:
    privileges.warn_in_background(partial(open_connection, "annals-check"), of_web())
# Else the first request of each process would import all pages, and others wait for it.
import_module(settings.ROOT_URLCONF)
gc.freeze()  # what exists now stays: no collection in a request needs to examine it
gc.set_threshold(50_000)  # a page makes thousands of objects, which no cycle keeps
application.request_class = Utf8Request
