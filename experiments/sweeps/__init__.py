"""Many configurations of one run, played over Ray and drawn as one landscape of privacy and utility."""
