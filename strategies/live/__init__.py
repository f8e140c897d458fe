"""The audit of a running federation by an observer around its strategy."""
