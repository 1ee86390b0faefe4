"""Front ends: each turns what its users write into one `LogicalGraph`. None of them imports another."""
