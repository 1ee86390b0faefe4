"""The logical graph, shared by front ends and engine: build, check, draw, serialise; routers; the task contract."""
