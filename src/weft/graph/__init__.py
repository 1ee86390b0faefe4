"""The narrow waist: the logical graph and how to build, check, draw and serialise it; routers; the task contract."""
