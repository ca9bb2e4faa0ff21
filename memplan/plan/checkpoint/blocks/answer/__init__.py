"""From a proof to the answer that is reported."""
