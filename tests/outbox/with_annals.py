"""Settings for mypy's Django plugin only. They install all apps that have models."""

import sys
from pathlib import Path

from annals.settings import *  # noqa: F403
from annals.settings import INSTALLED_APPS

sys.path.append(str(Path(__file__).parents[2] / "examples" / "shop"))
OURS = ["outbox", "outbox.inbox", "tests.outbox.shop", "tests.outbox.ways", "orders"]
INSTALLED_APPS = [*INSTALLED_APPS, *OURS]
