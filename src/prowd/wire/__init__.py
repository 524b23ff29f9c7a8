"""Messages between server and client, as bytes: versioned, bit-packed, checked before anything is allocated."""

from prowd.wire.messages import (
    DEFAULT_LIMIT,
    Parcel,
    Task,
    Update,
    decode_task,
    decode_update,
    encode_task,
    encode_update,
    encode_weights,
)
from prowd.wire.work import Work

__all__ = [
    "DEFAULT_LIMIT",
    "Parcel",
    "Task",
    "Update",
    "Work",
    "decode_task",
    "decode_update",
    "encode_task",
    "encode_update",
    "encode_weights",
]
