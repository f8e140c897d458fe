"""The public names of `import fl_audit`."""
