"""Who is alive when."""
