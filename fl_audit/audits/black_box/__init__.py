"""Black-box audits of privacy claims about third-party code: trials, transcripts and tests of the claim."""
