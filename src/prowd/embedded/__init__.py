"""C for microcontrollers: what is generated for a network, what it takes in memory, and the link to a board."""
