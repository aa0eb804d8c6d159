"""Makes readers, with the sources that this installation has."""

from functools import partial

from history.policy.access_record import AccessRecord
from history.policy.masking.viewer import Caller, Viewer
from history.timeline.fallback import client
from history.timeline.gate import HistoryReader
from history.timeline.sources import archive
from history.timeline.sources.old_service import OldServiceSource


def make_request_reader(user: Caller, access: AccessRecord) -> HistoryReader:
    """Make the reader of one HTTP request."""
    service = client.load_endpoint()
    old_service = (
        OldServiceSource(partial(client.call_in_thread, service), service.seconds)
        if service
        else OldServiceSource()
    )
    return HistoryReader(Viewer(user, access), archive.open_archive, old_service)


def make_host_reader(*, in_clear: bool = False) -> HistoryReader:
    """Make the reader of a program on the host, which reads every application, from the store
    alone.

    Args:
        in_clear: Show masked values: for a program that compares documents and prints none.
    """
    return HistoryReader(Viewer(None, in_clear=in_clear), archive.open_archive)
