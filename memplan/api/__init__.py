"""What Python code and notebooks call: the command line's answers for objects of the running process."""
