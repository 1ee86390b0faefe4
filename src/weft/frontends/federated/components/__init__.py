"""The parts of components: what a party runs of a component, in a process of its own."""
