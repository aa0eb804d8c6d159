"""Where the archive's files are: a directory, or an object store by its URL.

pyarrow's own file systems do both, so that no further library is needed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import IO, cast

from pyarrow import fs

BLOCK = 1 << 20


class ArchiveError(RuntimeError):
    """The archive is not what it should be; the text names the file and what is wrong."""


class Store:
    """Files by names relative to the archive's root, `product_instance_aud/2026-08-21/...`."""

    def __init__(self, url: str) -> None:
        """url: a directory's path, or file://, s3:// or gs:// as pyarrow takes it. Credentials for
        S3 come from where its tools look for them (AWS_ACCESS_KEY_ID and so on)."""
        self.url = url if "://" in url else Path(url).absolute().as_uri()
        self._files, root = fs.FileSystem.from_uri(self.url)
        self._root = root.rstrip("/")
        self._local = isinstance(self._files, fs.LocalFileSystem)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write, there under its name only when the block has ended without an error, and
        safe on the disk by then."""
        path = self._path(name)
        if not self._local:
            try:
                with self._files.open_output_stream(path) as sink:
                    yield cast(IO[bytes], sink)
            except BaseException:
                self.delete(name)  # closing the stream has made an object of what there was
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

    def open(self, name: str) -> IO[bytes]:
        """A file for reading in any order. Raises FileNotFoundError."""
        return cast(IO[bytes], self._files.open_input_file(self._path(name)))

    def read(self, name: str) -> bytes | None:
        """The whole of a small file; None where there is none."""
        try:
            with self.open(name) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def sha256(self, name: str) -> tuple[str, int]:
        """SHA-256 in hex and size in bytes of a file, as the store gives it back."""
        whole, size = hashlib.sha256(), 0
        with self.open(name) as file:
            while block := file.read(BLOCK):
                whole.update(block)
                size += len(block)
        return whole.hexdigest(), size

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._files.get_file_info(self._path(name)).type != fs.FileType.NotFound:
            self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def folder(table: str, day: date) -> str:
    """Where the files of one day of one table are."""
    return f"{table}/{day.isoformat()}"


def _sync_directory(path: Path) -> None:
    """Make the new name in a directory survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
