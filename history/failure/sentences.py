"""One sentence about any error. The only place that decides which one."""

from history.base.error_text import causes, describe
from history.failure.complaints import Complaint, of_file, of_text


def sentence(error: BaseException) -> str:
    """One line about any error, without the content of a document and without a password."""
    found = known(error)
    return f"unexpected error: {describe(error)}" if found is None else found


def known(error: BaseException) -> str | None:
    """The sentence about an error that the settings, the servers or the files of this installation
    have caused; None for others."""
    for each in causes(error):
        if isinstance(each, Complaint):
            return str(each)
        if isinstance(each, OSError) and each.errno is not None:
            return of_file(each)
        if isinstance(each, UnicodeDecodeError):
            return f"a text {of_text(each)}"
        if isinstance(each, OverflowError) and "port must be" in str(each):
            return "a port is a number from 1 to 65535"
    # Imported late: a command that only reads its settings needs no driver of the database.
    from history.failure.database import of_database

    return of_database(error)
