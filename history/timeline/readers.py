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
    return Reader(Viewer(user, look), archive.configured, old_service())


def old_service() -> OldService:
    """The old service as a new request asks it."""
    service = client.service()
    if service is None:
        return OldService()
    return OldService(partial(client.call, service), service.seconds)


def on_host(*, in_clear: bool = False) -> Reader:
    """A program on the host, which reads every application, of the store alone. in_clear: not
    masked; for one that compares documents and shows none."""
    return Reader(Viewer(None, in_clear=in_clear), archive.configured)
