"""What a training process imports: plans applied to a model, and what watches its memory. It never imports a solver."""
