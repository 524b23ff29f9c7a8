"""The installed version of prowd."""

from importlib.metadata import version

__version__ = version("prowd")
