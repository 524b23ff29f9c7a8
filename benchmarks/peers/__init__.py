"""Prowd against a bare loop, Flower and pfl: the same federation, timed in one run. See ``__main__``."""
