"""A membership attack that tests register, as somebody who extends fl_audit would."""
