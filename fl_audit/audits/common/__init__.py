"""What reports of all audits show: the numbers in modules `findings_*`, the words and figures in `sections_*`."""
