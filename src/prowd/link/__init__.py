"""A link to a device that is no Python process: a board on a serial port, a program, an address in a network.

``addresses`` say where it is, ``streams`` bring bytes there and back, ``frames`` find what is whole among them, and
``gateway`` hands over a task and comes back with the update.
"""

from prowd.link.addresses import check_address, open_stream
from prowd.link.gateway import ALLOWANCE, Gateway, Hello, Patience, Tally
from prowd.link.streams import Stream

__all__ = ["ALLOWANCE", "Gateway", "Hello", "Patience", "Stream", "Tally", "check_address", "open_stream"]
