"""Rules by which units participate in rounds; to add one, write a module for it and add a line to the registry."""
