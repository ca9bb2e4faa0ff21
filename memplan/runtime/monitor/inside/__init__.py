"""The folder that ``memplan monitor`` puts in front of ``PYTHONPATH``; ``sitecustomize`` in it is all there is."""
