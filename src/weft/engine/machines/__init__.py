"""The five lifecycles, each one table: job, vertex, bubble, lease, task."""
