"""What ProWD-Plus was: one model for all, instead of one for each side."""
