"""Every error prowd raises on purpose; the command line prints these as one line, without a traceback."""

__all__ = ["ClientError", "ConfigError", "DataError", "ProwdError", "RunError", "WireError"]


class ProwdError(Exception):
    """Base of all errors a user can cause or cure."""


class ConfigError(ProwdError):
    """A setting is unknown, malformed or impossible; the message names the field, the value and what is accepted."""


class WireError(ProwdError):
    """Bytes that are not a valid message: what is wrong and where."""


class DataError(ProwdError):
    """A data set is missing, damaged or of the wrong form."""


class RunError(ProwdError):
    """A run directory or checkpoint cannot be used."""


class ClientError(ProwdError):
    """A client's own code failed; carries the traceback of the process in which it ran."""
