"""The verdict on a promise: the measurement of the noise, and the declared family of tests."""
