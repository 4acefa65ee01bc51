"""Section 2.5: how an answer y is found once p(z|x) and p(y_i|x,z,y_<i) are given."""
