"""What is known of GPUs."""
