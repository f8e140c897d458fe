"""Black-box audits, which test a privacy claim about third-party code by playing trials with D and with D'."""
