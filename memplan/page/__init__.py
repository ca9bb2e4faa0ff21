"""What all pages share: the policy that shuts them off from the outside, a style, and helpers for scripts."""
