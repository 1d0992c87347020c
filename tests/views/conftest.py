"""A store in a file, and runs that are driven beside a test."""

from tests.web.conftest import driven, store

__all__ = ["driven", "store"]
