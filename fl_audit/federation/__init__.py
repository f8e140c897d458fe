"""What every party of a federation knows and sees, and what a finished run has."""
