"""Bodies of tasks that more than one front end uses. A front end's own bodies live beside its compiler."""
