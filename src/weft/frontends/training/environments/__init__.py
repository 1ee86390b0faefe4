"""The environment variables of the containers of each kind of jobs, one module for each kind."""
