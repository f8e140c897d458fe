"""Output of a report: the HTML page, the PDF, and a summary for the terminal."""
