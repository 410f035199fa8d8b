"""Memory of each class, and a connection between processes."""

import socket

import pytest
import vkgdr
from everything import MAKERS


@pytest.fixture(params=MAKERS)
def anything(request):
    """Allocate memory of each class, and free it afterwards."""
    if request.param.startswith("pycuda"):
        request.getfixturevalue("pycuda_context")
        owner = vkgdr.Vkgdr(0)
    else:
        owner = request.getfixturevalue("gpu")
    memory = MAKERS[request.param](owner)
    yield memory
    memory.free()


@pytest.fixture
def pair():
    """Return the two ends of a connection."""
    ours, theirs = socket.socketpair()
    # Does not wait forever if the other process dies.
    ours.settimeout(40)
    with ours, theirs:
        yield ours, theirs
