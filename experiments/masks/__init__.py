"""Other masks than those of Eq. 8: a limit, and controls that drop as many entries by another rule."""
