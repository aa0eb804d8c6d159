"""How a command ends that cannot do what it is asked: one sentence on standard error."""

from __future__ import annotations

import errno
import logging
import os
import select
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from annals.command_line import streams
from history.plain_text import one_line

logger = logging.getLogger(__name__)

FAILED: Final = 1
INTERRUPTED: Final = 130
READER_LEFT: Final = 141  # as a program that SIGPIPE ends

KEPT: Final = "\n\t"
MORE: Final = "With ANNALS_LOG_LEVEL=DEBUG the log says where"


class Refused(Exception):
    """A command raised CommandError. Django would print the name of its class."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def run(command: Callable[[], object]) -> None:
    """Run a command. What ends it is printed as a sentence; the stack goes to the log, at DEBUG. A
    reader of standard output that leaves, such as `head`, ends it without a word, unless the
    command asked to keep on."""
    streams.begin()
    try:
        try:
            command()
        except SystemExit:
            streams.settle()
            raise
        finally:
            sys.stdout.flush()
        streams.settle()
    except Refused as refused:
        _end(str(refused), refused.__cause__, refused.code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno == errno.EPIPE and _reader_left():
            _forget_output()
            sys.exit(READER_LEFT)
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            _forget_output()
        _fail(error)
    except Exception as error:
        _fail(error)


def _fail(error: Exception) -> NoReturn:
    from history.failure.sentences import known, sentence

    text = known(error)
    _end(text or f"{sentence(error)}. {MORE}", error, FAILED)


def _end(text: str, error: BaseException | None, code: int) -> NoReturn:
    _log(error)
    # Several lines list several faults, such as those of a file.
    end = "" if text.endswith((".", "?", "!", ";")) or "\n" in text else "."
    # There may be words of messages and of files in it, and this is a terminal.
    sys.stderr.write(f"annals: {one_line(text, KEPT)}{end}\n")
    sys.exit(code)


def _log(error: BaseException | None) -> None:
    """The stack, without the row that an error of the database quotes."""
    if error is None:
        return
    if "--traceback" in sys.argv:
        from history.error_text import trace

        sys.stderr.write(f"{trace(error)}\n")
    if not logging.getLogger().handlers:  # the settings are not read yet
        wanted = os.environ.get("ANNALS_LOG_LEVEL") == "DEBUG"
        logging.basicConfig(level=logging.DEBUG if wanted else logging.WARNING)
    logger.debug("the command failed", exc_info=error)


def _reader_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _forget_output() -> None:
    """Without this Python reports it again at its last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
