"""The names that `import fl_audit` offers."""
