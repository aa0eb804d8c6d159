"""One temporary PostgreSQL for the whole test run, started before Django reads its settings.

This is a pytest plugin and not a conftest.py, because pytest-django reads the settings before any
conftest.py. With ANNALS_TEST_DATABASE_URL the tests create their databases on that server instead.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="annals-test-"))


def _prepare_server() -> None:
    os.environ["ANNALS_HOME"] = str(HOME)
    os.environ["ANNALS_DEMO"] = "true"
    os.environ["ANNALS_LANGUAGE"] = "en"
    os.environ["DJANGO_SETTINGS_MODULE"] = "annals.settings"
    url = os.environ.get("ANNALS_TEST_DATABASE_URL")
    if url:
        os.environ["DATABASE_URL"] = url
        atexit.register(shutil.rmtree, HOME, ignore_errors=True)
        return
    from annals.embedded.postgres import EmbeddedPostgres

    server = EmbeddedPostgres(HOME / "postgres", settings={"fsync": "off"})
    server.start()
    os.environ["DATABASE_URL"] = server.build_url()

    def remove_server() -> None:
        server.stop("immediate")
        shutil.rmtree(HOME, ignore_errors=True)

    atexit.register(remove_server)


_prepare_server()
