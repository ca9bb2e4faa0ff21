"""Plans: problems made from traces, solvers, and validators that share no code with them."""
