"""Static checks of training code for memory hazards."""
