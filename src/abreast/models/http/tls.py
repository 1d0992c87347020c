"""The certificates that providers are trusted by."""

import os
import ssl
from functools import lru_cache


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """A context with the system's certificates (or SSL_CERT_FILE's) and those of `ca_file`.

    Raises ValueError with a sentence that names the file if one can't be read.
    """
    return _context(ca_file, os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths())


@lru_cache(maxsize=64)
def _context(
    ca_file: str | None, named: str | None, _paths: ssl.DefaultVerifyPaths
) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if named:  # OpenSSL ignores a file that is missing: every call would then fail
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), named, "SSL_CERT_FILE")
    if ca_file:
        _load(context, ca_file, "ca_file")
    return context


def _load(context: ssl.SSLContext, path: str, what: str) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise ValueError(f"{what}: {path} has no certificates in it, in PEM form") from None
    except OSError as error:
        raise ValueError(f"{what}: {path} can't be read ({error.strerror})") from None
