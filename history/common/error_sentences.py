"""One sentence about any error. The only place that decides which one."""

from history.common.complaints import ExplainedError, explain_file_error, explain_text_error
from history.common.error_text import describe, iterate_causes


def explain_error(error: BaseException) -> str:
    """Describe any error in one line, without the content of a document and without a password."""
    text = explain_known_error(error)
    return f"unexpected error: {describe(error)}" if text is None else text


def explain_known_error(error: BaseException) -> str | None:
    """Return a sentence about an error caused by settings, servers or files of this installation.

    Returns None for any other error.
    """
    for cause in iterate_causes(error):
        if isinstance(cause, ExplainedError):
            return str(cause)
        if isinstance(cause, OSError) and cause.errno is not None:
            return explain_file_error(cause)
        if isinstance(cause, UnicodeDecodeError):
            return f"a text {explain_text_error(cause)}"
        if isinstance(cause, OverflowError) and "port must be" in str(cause):
            return "a port is a number from 1 to 65535"
    # Imported late: a command that only reads its settings needs no driver of the database.
    from history.common.database_errors import explain_database_error

    return explain_database_error(error)
