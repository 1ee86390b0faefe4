"""Tensors: lazy arrays in chunks, compiled to graphs. `weft.tensor` is what people use of it."""
