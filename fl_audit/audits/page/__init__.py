"""Output of a report: the HTML page, the PDF and figure files, and a summary for the terminal."""
