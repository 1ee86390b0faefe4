"""SQL: a query is planned by DuckDB, cut into stages at exchanges, and each stage runs as DuckDB SQL in its tasks."""
