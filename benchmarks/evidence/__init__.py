"""The evidence: the paper's experiments, scaled down, on the real CIFAR-10, and what they say of its claims."""
