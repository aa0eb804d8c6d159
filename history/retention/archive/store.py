"""Reads and writes the files of the archive, in a directory or in an object store.

pyarrow opens both kinds from the URL in ANNALS_ARCHIVE_URL.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

from pyarrow import fs
from pyarrow.lib import ArrowInvalid, ArrowNotImplementedError

from history.common.explained_errors import ExplainedError

READ_BYTES = 1 << 20
_WRONG_URL = (
    "ANNALS_ARCHIVE_URL is wrong: pyarrow does not read it. A key in the URL needs % as %25, / as "
    "%2F, + as %2B and @ as %40, or is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; the bucket "
    "has no spaces, and the URL has only parameters that pyarrow knows"
)


class ArchiveError(ExplainedError, RuntimeError):
    """Raised if something is wrong with the archive. The message names the file or the day."""


class ArchiveStore:
    """The files of the archive, in a directory or in an object store.

    The name of a file is its path inside the archive, for example
    `product_instance_aud/2026-08-21/manifest.json`.
    """

    def __init__(self, url: str) -> None:
        """Open the archive at this URL.

        Args:
            url: The path of a directory, or a URL that pyarrow knows: file://, s3:// or gs://.
                Credentials for S3 are in the URL, or in variables such as AWS_ACCESS_KEY_ID.

        Raises:
            ArchiveError: The URL cannot be used.
        """
        self.url = url if "://" in url else Path(url).absolute().as_uri()
        try:
            self._files, root = fs.FileSystem.from_uri(self.url)
        except (ArrowInvalid, ArrowNotImplementedError, ValueError):
            raise ArchiveError(
                _WRONG_URL
            ) from None  # pyarrow's message quotes the URL with its key
        # For messages: the URL without credentials.
        parts = urlsplit(self.url)
        self.place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        self._root = root.rstrip("/")
        self._local = isinstance(self._files, fs.LocalFileSystem)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """Open a new file for writing. It gets its name when the `with` block ends without error.

        In a local directory, the file is synced to the disk before it gets its name.
        """
        path = self._path(name)
        if not self._local:
            try:
                with self._files.open_output_stream(path) as sink:
                    yield cast(IO[bytes], sink)
            except BaseException:
                self.delete(name)  # closing the stream has stored the unfinished object
                raise
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.unfinished")
        try:
            with unfinished.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
        _sync_directory(target.parent)

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a small file. Readers get the old bytes or the new ones."""
        if self._local:
            with self.write(name) as file:
                file.write(data)
        else:
            with self._files.open_output_stream(self._path(name)) as sink:
                sink.write(data)
        if self.read(name) != data:
            raise ArchiveError(f"{name}: the bytes that were read back differ from those written")

    def list_names(self, folder: str) -> list[str]:
        """List the files directly in a folder, also unfinished ones."""
        selector = fs.FileSelector(self._path(folder), allow_not_found=True)
        infos = self._files.get_file_info(selector)
        return sorted(
            f"{folder}/{info.base_name}" for info in infos if info.type == fs.FileType.File
        )

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading in any order.

        Raises:
            FileNotFoundError: The file does not exist.
        """
        return cast(IO[bytes], self._files.open_input_file(self._path(name)))

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file, or None if it does not exist."""
        try:
            with self.open(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def compute_sha256(self, name: str) -> tuple[str, int]:
        """Read a file, and return its SHA-256 in hex and its size in bytes."""
        file_hash, size = hashlib.sha256(), 0
        with self.open(name) as file:
            while block := file.read(READ_BYTES):
                file_hash.update(block)
                size += len(block)
        return file_hash.hexdigest(), size

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        if self._files.get_file_info(self._path(name)).type != fs.FileType.NotFound:
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        if ".." in name.split("/"):
            raise ArchiveError(f"{name} is not in the archive")
        return f"{self._root}/{name}"


def build_day_folder(table: str, day: date) -> str:
    """Return the name of the folder of one day of one table."""
    return f"{table}/{day.isoformat()}"


def _sync_directory(path: Path) -> None:
    """Write a directory to the disk, so that a new name in it survives a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
