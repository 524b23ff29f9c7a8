"""Public rivals of ProWD-Plus at its bytes: server rules of others, over the movements that it sends."""
