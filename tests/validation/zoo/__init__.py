"""The zoo of broken mechanisms: privacy claims that are false, each beside an honest mechanism for which it holds."""
