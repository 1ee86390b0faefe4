"""The dependencies of a Python function, read from sources: statements, modules, and the walk from name to name."""
