"""What the make targets run: set-up, locks, the jar, the checks. Not part of the distribution."""
