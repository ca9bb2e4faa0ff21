"""What is measured, as metrics that Prometheus scrapes."""
