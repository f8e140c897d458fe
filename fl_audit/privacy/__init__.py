"""What is promised: pure mathematics, without torch."""
