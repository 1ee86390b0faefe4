"""Federated jobs: the DSL and conf files of FATE 1.x, for two or more parties (see `docs/federated.md`)."""
