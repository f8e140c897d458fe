"""The report of one audit run: figures, one self-contained HTML page, a short terminal table."""
