"""The verdict on a guarantee: the measurement of the noise, and the declared family of tests."""
