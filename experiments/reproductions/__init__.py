"""The tables and figures of published papers, computed again and set beside what was printed."""
