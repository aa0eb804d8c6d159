"""Chooses the sentence that describes an error to people."""

from history.common.error_text import describe, iterate_causes
from history.common.explained_errors import ExplainedError, explain_file_error, explain_text_error


def explain_error(error: BaseException) -> str:
    """Describe any error in one line, without passwords and without the content of documents."""
    text = explain_known_error(error)
    return f"unexpected error: {describe(error)}" if text is None else text


def explain_known_error(error: BaseException) -> str | None:
    """Describe an error that settings, servers or files caused; return None for other errors."""
    for cause in iterate_causes(error):
        if isinstance(cause, ExplainedError):
            return str(cause)
        if isinstance(cause, OSError) and cause.errno is not None:
            return explain_file_error(cause)
        if isinstance(cause, UnicodeDecodeError):
            return f"a text {explain_text_error(cause)}"
        if isinstance(cause, OverflowError) and "port must be" in str(cause):
            return "a port is a number from 1 to 65535"
    # Imported late: a command that only reads its settings does not need the database driver.
    from history.common.database_errors import explain_database_error

    return explain_database_error(error)
