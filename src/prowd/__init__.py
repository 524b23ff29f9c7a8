"""Federated learning for devices of unequal precision.

>>> import prowd
>>> result = prowd.run("quick", rounds=3)
>>> result.summary["accuracy"]["trained"]
"""

from importlib.metadata import version

__version__ = version("prowd")  # before the imports: the rooms read it

from prowd.api import compare, convert, run
from prowd.errors import ProwdError

__all__ = ["ProwdError", "__version__", "compare", "convert", "run"]
