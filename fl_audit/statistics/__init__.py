"""Statistics: confidence intervals, lower bounds on epsilon and levels, from scores alone and with no federation."""
