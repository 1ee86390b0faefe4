"""Settings, named file systems, schedules, control sockets, and the removal of runs."""
