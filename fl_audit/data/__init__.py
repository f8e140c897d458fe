"""Load data sets, divide them among clients, make neighbouring training sets, and randomize single records."""
