"""What memplan exchanges: one description of each document, from which it is written, read and described."""
