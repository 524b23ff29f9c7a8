"""The notebook: the paper's experiments scaled down, what explains them, and readings that were tried and lost."""
