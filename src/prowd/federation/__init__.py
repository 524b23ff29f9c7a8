"""The federation: Algorithm 1, what the server accepts, how messages travel, what a round reports."""
