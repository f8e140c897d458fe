"""What is claimed: pure mathematics, without torch."""
