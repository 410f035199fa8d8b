"""A handle of pycuda's context."""

import pytest
import vkgdr


@pytest.fixture
def handle(pycuda_context):
    """Open the GPU of pycuda's context."""
    return vkgdr.Vkgdr(hash(pycuda_context.get_device()))
