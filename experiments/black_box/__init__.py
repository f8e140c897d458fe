"""What a trial of a foreign mechanism leaves behind: a page, a figure, and the same as JSON."""
