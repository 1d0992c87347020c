"""Small images and PDF files for tests, made here byte by byte."""

import struct
import zlib


def png(colour=0, width=2, height=2):
    """A grey image of one colour, from 0 to 255."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + bytes([colour]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pdf(pages=1, *, compressed=False):
    """A PDF file with so many empty pages, their entries in a compressed stream if asked for."""
    entries = b" ".join(b"<< /Type /Page /Parent 1 0 R >>" for _ in range(pages))
    tree = b"<< /Type /Pages /Count %d >>" % pages
    if compressed:
        packed = zlib.compress(tree + entries)
        inside = b"<< /Type /ObjStm /Length %d >>\nstream\n" % len(packed)
        return b"%PDF-1.7\n" + inside + packed + b"\nendstream\n%%EOF"
    return b"%PDF-1.4\n" + tree + entries + b"\n%%EOF"


JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0"
GIF = b"GIF89a\1\0\1\0\0\0\0;"
WEBP = b"RIFF\x1a\0\0\0WEBPVP8L"
