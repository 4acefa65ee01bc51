"""Section 2.3, the generator: p(y_i|x,z,y_<i), one passage read with the query at a time."""
