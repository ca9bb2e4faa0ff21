"""``--config FILE``: what a framework's configuration file says of a job, and where it says so."""
