"""The rules of a legal graph, by the part that they are about; `weft.graph.validate` applies them all."""
