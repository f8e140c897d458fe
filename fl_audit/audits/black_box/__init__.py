"""Claims of other people's code held against what an insider sees of it: trials, what was seen, and the evidence."""
