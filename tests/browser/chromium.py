"""Debian's Chromium under playwright, which is kept from downloading one of its own."""

from __future__ import annotations

from playwright.sync_api import Browser, Playwright

from tests import need

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def launch(playwright: Playwright) -> Browser:
    """Skips the test, or fails it in CI, where there is no Chromium."""
    return playwright.chromium.launch(executable_path=need.chromium(), args=FLAGS)
