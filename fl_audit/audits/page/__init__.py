"""The page and the PDF of a report, and its first lines on a terminal."""
