"""The four lifecycles, each one table: job, vertex, bubble, task."""
