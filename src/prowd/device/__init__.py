"""What a client knows and does: the fixed facts of a federation, the one local training loop, its memory."""
