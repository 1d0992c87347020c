"""Images and PDF files that a message carries, recognised by their content."""

import hashlib
import re
import stat
import zlib
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import field
from os import PathLike, fspath
from pathlib import Path
from typing import Final, TypeAlias

from abreast.core.frozen import record

PDF: Final = "application/pdf"
MAX_MEDIA_BYTES: Final = 50 << 20
"""The largest file that is sent: no provider takes a larger one inside a request."""
_HEAD_BYTES: Final = 1024  # a PDF may have other bytes before its mark, within these
_OBJECT_STREAM: Final = re.compile(rb"/ObjStm.{0,400}?stream\r?\n", re.DOTALL)
_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_MAX_STREAM_BYTES: Final = 4 << 20  # of one object stream, decompressed


@record(frozen=True, slots=True)
class MediaFile:
    """An image (PNG, JPEG, GIF, WebP) or a PDF file. Equal if their content is.

    Made by `MediaFile.read(path)`, which keeps the path and reads the content again when it is
    sent, or by `MediaFile.of(data)`.
    """

    media_type: str
    sha256: str
    size: int
    """Bytes."""
    pages: int = field(default=1, compare=False)
    """Of a PDF file, as far as they can be counted; 1 for an image."""
    name: str = field(default="", compare=False)
    path: str | None = field(default=None, compare=False)
    data: bytes | None = field(default=None, compare=False, repr=False)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "MediaFile":
        """Read a file.

        Raises ValueError, with the path and what to do, for one that is missing, unreadable,
        empty, too large or of another type.
        """
        text = fspath(path)
        check_media(text)
        return _make(_bytes_of(text), text, Path(text).name, path=text)

    @classmethod
    def of(cls, data: bytes, name: str = "") -> "MediaFile":
        """The file of this content; `name` is what a provider is told of a PDF file."""
        return _make(data, name or "the file", name, kept=data)

    @property
    def is_pdf(self) -> bool:
        """Whether it is a PDF file, not an image."""
        return self.media_type == PDF

    @property
    def mark(self) -> str:
        """What journals and pages show instead of the content."""
        return f"[{self.media_type} {self.size:,} bytes sha256:{self.sha256}]"

    def content(self) -> bytes:
        """The bytes; ValueError if the file has changed since it was read."""
        if self.data is not None or self.path is None:
            return self.data or b""
        data = _bytes_of(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise ValueError(f"{self.path} changed after it was read; try again")
        return data

    def base64(self) -> str:
        """The content as every provider takes it."""
        return b64encode(self.content()).decode()

    def data_url(self) -> str:
        """The content with its media type, as a URL."""
        return f"data:{self.media_type};base64,{self.base64()}"


MediaSource: TypeAlias = "str | PathLike[str] | MediaFile"


def read_files(given: Iterable[MediaSource], folder: str = "") -> tuple[MediaFile, ...]:
    """The files of paths, which are relative to `folder`, and of those that were read already."""
    return tuple(
        one if isinstance(one, MediaFile) else MediaFile.read(Path(folder, one)) for one in given
    )


def check_media(path: str) -> str:
    """The media type of a file by its first bytes; raises as `MediaFile.read` does."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for its writer
            what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise ValueError(f"{path} is {what}; give the path of an image or a PDF file")
        with Path(path).open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
    except OSError as error:
        raise _unreadable(path, error) from None
    return _check(head, size, path)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OSError) -> ValueError:
    why = (error.strerror or str(error)).lower()
    return ValueError(f"{path} can't be read ({why}); give the path of an image or a PDF file")


def _make(
    data: bytes, where: str, name: str, *, path: str | None = None, kept: bytes | None = None
) -> MediaFile:
    media_type = _check(data[:_HEAD_BYTES], len(data), where)
    pages = _count_pages(data) if media_type == PDF else 1
    digest = hashlib.sha256(data).hexdigest()
    return MediaFile(media_type, digest, len(data), pages, name, path, kept)


def _check(head: bytes, size: int, where: str) -> str:
    if not size:
        raise ValueError(f"{where} is empty; give an image or a PDF file")
    if size > MAX_MEDIA_BYTES:
        raise ValueError(
            f"{where} has {size >> 20} MB, and {MAX_MEDIA_BYTES >> 20} are the most that can be "
            "sent; make it smaller"
        )
    if (found := _type_of(head)) is None:
        raise ValueError(
            f"{where} is neither an image (PNG, JPEG, GIF, WebP) nor a PDF file; convert it"
        )
    return found


def _type_of(head: bytes) -> str | None:
    """The media type by the marks with which these formats begin."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return PDF if b"%PDF-" in head else None


def _count_pages(data: bytes) -> int:
    """The pages of a PDF file; their entries may be in compressed streams."""
    found = len(_PAGE.findall(data))
    for stream in _OBJECT_STREAM.finditer(data):
        try:
            inside = zlib.decompressobj().decompress(
                data[stream.end() : stream.end() + _MAX_STREAM_BYTES], _MAX_STREAM_BYTES
            )
        except zlib.error:
            continue
        found += len(_PAGE.findall(inside))
    return max(1, found)
