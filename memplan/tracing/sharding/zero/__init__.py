"""DeepSpeed's ZeRO, traced: the installed DeepSpeed itself shards the model and steps it, on fake tensors.

``world.deepspeed_world`` opens before anything else of a trace, for it imports DeepSpeed; ``loop.training`` is the loop
that stands in for memplan's own. What cannot run without GPUs and ranks is replaced by what allocates the same
(``stand_ins``): disks, the look at gradients for overflow, DeepSpeed's choice of a device.
"""
