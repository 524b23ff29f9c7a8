"""What hostile devices cost, with and without a defence."""
