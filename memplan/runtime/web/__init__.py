"""What is measured, over HTTP on loopback: a small server, and a live page."""
