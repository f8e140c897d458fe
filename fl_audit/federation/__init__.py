"""Knowledge and observations of every party of a federation, and the results of a finished run."""
