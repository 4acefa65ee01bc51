"""Section 4: how answers and retrieval are scored."""
