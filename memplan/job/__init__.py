"""What is asked: targets and options become a job."""
