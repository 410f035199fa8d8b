"""Memory that the host views, and memory that it does not."""

import numpy as np
import pytest
import vkgdr


@pytest.fixture
def memory(gpu):
    """Return mapped memory with known bytes."""
    memory = vkgdr.Memory(gpu, 4096)
    np.asarray(memory)[:] = np.arange(4096) % 253
    return memory


@pytest.fixture
def invisible(gpu):
    """Return device memory with known bytes."""
    memory = vkgdr.Memory(gpu, 4096, kind="device")
    memory.copy_from_host(bytes(range(256)) * 16)
    return memory
