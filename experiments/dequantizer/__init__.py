"""φ against trivial dequantizers: nearer to the weights by a quarter, no better in accuracy."""
