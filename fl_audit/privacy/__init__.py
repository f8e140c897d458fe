"""Privacy guarantees: pure mathematics, without torch."""
