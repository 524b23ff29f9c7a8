"""Federated learning for devices of unequal precision."""

from prowd._version import __version__
from prowd.errors import ProwdError

__all__ = ["ProwdError", "__version__"]
