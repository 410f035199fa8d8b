"""A connection between processes."""

import socket

import pytest


@pytest.fixture
def pair():
    """Return the two ends of a connection."""
    ours, theirs = socket.socketpair()
    # Does not wait forever if the other process dies.
    ours.settimeout(40)
    with ours, theirs:
        yield ours, theirs
