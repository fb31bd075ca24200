"""Each test runs in a folder of its own."""

from tests.support.command import here

__all__ = ["here"]
