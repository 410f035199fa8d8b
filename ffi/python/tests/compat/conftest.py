"""Memory of each kind."""

import pytest
import vkgdr
from everything import SIZE
from neighbours import KINDS


@pytest.fixture(params=KINDS)
def memory(gpu, request):
    """Allocate memory of each kind."""
    return vkgdr.Memory(gpu, SIZE, kind=request.param)


@pytest.fixture(params=["mapped", "host"])
def visible(gpu, request):
    """Allocate memory of each kind with a host view."""
    return vkgdr.Memory(gpu, SIZE, kind=request.param)
