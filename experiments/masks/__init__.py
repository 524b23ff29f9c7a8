"""Other masks than those of Eq. 8: limits help, and which entries are dropped matters."""
