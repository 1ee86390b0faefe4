"""Files that people write: YAML and JSON as trees with positions, inside limits, and the mistakes found in them."""
