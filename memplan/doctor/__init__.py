"""Looks at what memplan finds on this machine: versions, names of torch, solvers, extras, devices, caches."""
