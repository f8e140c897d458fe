"""The federation and its data, the observations of each party, and the results of a finished run."""
