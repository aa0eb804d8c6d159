"""Makes readers, with the sources that this installation has."""

from functools import partial

from history.fallback import client
from history.masking.viewer import Caller, Viewer
from history.requests.accesses import Look
from history.timeline.gate import Reader
from history.timeline.sources import archive
from history.timeline.sources.old_service import OldService


def of_request(user: Caller, look: Look) -> Reader:
    """The reader of a request."""
    service = client.service()
    old = OldService(partial(client.call, service), service.seconds) if service else OldService()
    return Reader(Viewer(user, look), archive.configured, old)


def on_host(*, in_clear: bool = False) -> Reader:
    """A program on the host, which reads every application, of the store alone. in_clear: not
    masked; for one that compares documents and shows none."""
    return Reader(Viewer(None, in_clear=in_clear), archive.configured)
