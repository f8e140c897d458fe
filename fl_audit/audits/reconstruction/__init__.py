"""The reconstruction audit: guess which of several candidates is in, and reconstruct images from updates."""
