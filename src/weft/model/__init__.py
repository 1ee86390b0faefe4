"""The shared nouns: ids, resources, chunk references, programs, errors. Plain frozen data, standard library only."""
