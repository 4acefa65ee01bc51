"""Section 2.4: training the query encoder and the generator jointly, the index frozen."""
