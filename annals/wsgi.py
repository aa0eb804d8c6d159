"""The WSGI application."""

import os

from django.core.wsgi import get_wsgi_application

from annals.start import prepare

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
prepare(["runserver"])
_django = get_wsgi_application()

from history.addresses import keeping_raw_path  # noqa: E402 - needs Django's settings

application = keeping_raw_path(_django)
