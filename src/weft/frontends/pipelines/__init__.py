"""PaddleFlow pipelines: read the YAML, check it, resolve its templates.

The path of a file: `documents.yaml.load` (text to a tree with positions, inside limits) → `parsing.read` (tree to
frozen records) → `check.check` (every rule between records) → `resolve.resolve` (templates, paths and environment of
one run).
`documents.problems.Problems` collects the mistakes, which are reported together, each with file, line and column.
"""
