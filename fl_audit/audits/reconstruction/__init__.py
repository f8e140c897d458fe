"""The reconstruction audit: which of several candidates is in, and images reconstructed from updates."""
