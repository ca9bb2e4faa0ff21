"""Eager runs of torchtitan that torchao publishes: Llama 3 8B under FSDP2 on eight H100s, January 2025.

The figures are torchao/prototype/float8nocompile/README.md's *peak memory*: reserved memory as torchtitan logs it, of
torchtitan's pull request 778. torchtitan of that time is on no package index, so its model and its step are written
down here (``llama``, ``program``); the float8 layers are torchao's own, with their Triton kernels. What the sources say
beside that:

* ``run_llama_train.sh`` sets ``expandable_segments:True`` (since October 2024, pull request 643);
* norms are torchtitan's own (until March 2025, pull request 985), AdamW is ``foreach`` (``optimizer.fused`` was off);
* float8 layers keep ``convert_to_float8_nocompile_training``'s defaults, as that README uses it.

What it needs: ``MEMPLAN_TORCH_2_6`` names a Python with torch 2.6, the release of those weeks (without it, this one's
torch traces), and for the float8 rows ``MEMPLAN_TORCHTITAN`` a folder with torchao of that time, installed by

    pip install --no-deps --target FOLDER torchao==0.9.0
"""
