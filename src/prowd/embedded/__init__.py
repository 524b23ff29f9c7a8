"""C for microcontrollers: what is generated for a network, the memory it takes, and its compilation and check."""
