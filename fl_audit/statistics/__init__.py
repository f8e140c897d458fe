"""Statistics: confidence intervals, lower bounds on epsilon and significance levels, without a federation."""
