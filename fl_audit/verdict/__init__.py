"""Judge whether a run agrees with its privacy claim, by noise measurements and tests whose result is a verdict."""
