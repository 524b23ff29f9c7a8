"""The integer cross-entropy against a float softmax: the same error codes."""
