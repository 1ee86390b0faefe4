"""Tensors: lazy arrays in chunks, compiled to graphs. `weft.tensor` is the public face."""
