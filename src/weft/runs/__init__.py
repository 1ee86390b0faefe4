"""Use cases of runs: records, lists, explanations, and durable graphs."""
