"""Arrays that are computed when a value is asked for: `Tensor`, and its functions, one module for each subject."""
