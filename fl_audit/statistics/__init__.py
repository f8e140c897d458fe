"""Statistics: confidence intervals, lower bounds on epsilon and levels, from scores alone and without a federation."""
