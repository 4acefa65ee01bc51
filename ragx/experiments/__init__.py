"""Section 4.5 and the runs around it: predict, evaluate, swap the index."""
