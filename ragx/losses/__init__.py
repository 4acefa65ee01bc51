"""Section 2.1: the two likelihoods as pure functions of tensors; torch only."""
