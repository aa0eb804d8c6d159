"""The WSGI application."""

import os

from django.core.wsgi import get_wsgi_application

from annals.start import prepare

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
prepare(["runserver"])
_django = get_wsgi_application()

from functools import partial  # noqa: E402 - all of them need Django's settings

from django.conf import settings  # noqa: E402

from history import privileges  # noqa: E402
from history.addresses import keeping_raw_path  # noqa: E402
from ingest.store.connect import connect  # noqa: E402

if not settings.ANNALS.demo:
    privileges.warn_in_background(partial(connect, "annals-check"))
application = keeping_raw_path(_django)
