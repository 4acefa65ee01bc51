"""Which passage supports an answer, and whether that can be checked."""
