"""The functions behind the public names of `import fl_audit`."""
