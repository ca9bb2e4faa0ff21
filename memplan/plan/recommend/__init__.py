"""The best way to run a job on the GPUs at hand: searched, traced, ranked and explained."""
