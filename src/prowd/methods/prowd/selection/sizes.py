"""How many entries are worked on at a time: this decides what is fast, not what is found. Tests make them few."""

BLOCK = 2**14  # entries at a time: temporaries stay in the cache, and PyTorch adds so few on one thread
SMALL = 2**19  # entries that may be sorted or copied as float64: a few megabytes
SAMPLE = 2**16  # entries that tell where the score of some rank is likely to be
