"""Data: sets of known content, their partition over clients, and augmentation."""

from prowd.data.augment import OPERATIONS, augment
from prowd.data.dataset import ARRAYS, Dataset, from_arrays
from prowd.data.partition import Partition, partition
from prowd.data.registry import catalogue, fetch, load, mapped, verify
from prowd.data.sources import Progress

__all__ = [
    "ARRAYS",
    "OPERATIONS",
    "Dataset",
    "Partition",
    "Progress",
    "augment",
    "catalogue",
    "fetch",
    "from_arrays",
    "load",
    "mapped",
    "partition",
    "verify",
]
