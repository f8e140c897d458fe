"""The audit of one released model, from its file and the losses of members and of other records."""
