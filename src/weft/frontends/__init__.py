"""Front ends: compilers of users' jobs to a `LogicalGraph`. No front end imports another."""
