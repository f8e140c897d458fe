"""The risk of one released model: Epsilon*, from losses of members and of others."""
