"""Pictures out of updates: what a curious server, or a client who knows all others, draws from what an owner shares."""
