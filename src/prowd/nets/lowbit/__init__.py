"""Training in s bits: layers, the integer update rule, and interchangeable kernels."""
