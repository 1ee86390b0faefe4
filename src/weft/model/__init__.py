"""Plain frozen data shared by all layers: ids, resources, chunk references, programs, errors; standard library only."""
