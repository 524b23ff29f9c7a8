"""ProWD-Plus with another message: refined ternary weights are four to five points below movements."""
