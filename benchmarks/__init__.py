"""Measures source and sink against the official client and against bare gRPC, always as ratios in one run."""
