"""One module per kind of hazard; each function finds what one rule means in one source text."""
