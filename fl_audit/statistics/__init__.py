"""Compute confidence intervals, lower bounds on epsilon and significance levels from the results of attacks."""
