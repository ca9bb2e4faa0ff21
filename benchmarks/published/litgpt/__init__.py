"""Peaks that litgpt publishes of its own fine-tuning and generation, run again on fake tensors.

The figures are tutorials/resource-tables.md (A100 40 GB) and config_hub/finetune/README.md (A10G) of
github.com/Lightning-AI/litgpt: ``torch.cuda.max_memory_allocated() / 1e9`` of whole runs. What runs here is litgpt's
own model code, Fabric and bitsandbytes; only the loops are written after litgpt's (``finetune``, ``generate``), as they
also read checkpoints and data from disk.

What it needs, and without which a case fails with a message that says so:

* ``MEMPLAN_DATA`` (or ``../shared/data`` beside the checkout) with ``measured/measured.csv``;
* ``MEMPLAN_LITGPT``: a folder with the packages of their time, installed by

      pip install --no-deps --target base lightning==2.4.0 lightning-utilities torchmetrics bitsandbytes==0.42.0 \
          'setuptools<81'
      pip install --no-deps --target 0.2.0 litgpt==0.2.0
      pip install --no-deps --target 0.4.12 litgpt==0.4.12

The litgpt of a row is not always on PyPI; ``recipes`` says which release stands for it, and why it is equal.
"""

from published.litgpt.rows import cases

__all__ = ["cases"]
