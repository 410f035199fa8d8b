"""An example of a device array."""

import pytest
from neighbours import EXAMPLE
from vkgdr.arrays import to_device


@pytest.fixture(params=["mapped", "host", "device"])
def example(request, gpu):
    """Return `EXAMPLE` as an array of each kind."""
    return to_device(EXAMPLE, kind=request.param, owner=gpu)
