"""The WSGI application."""

import os

from django.core.wsgi import get_wsgi_application

from annals.start import prepare

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "annals.settings")
prepare(["runserver"])
application = get_wsgi_application()
