"""What a Python function depends on, read from sources: statements, modules, and the walk from name to name."""
