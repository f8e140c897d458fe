"""Black-box audits of claims about other people's code: trials, transcripts, and the evidence."""
