"""What people install: the distributions of a release, and the wheel in an environment of its own."""
