"""Limits on predicted GPU memory as tests: ``@pytest.mark.limit_gpu_memory("70 GiB", gpu="h100-80g", target=…)``.

``plugin`` is what pytest loads, in every run of every project that memplan is installed beside: it imports nothing but
pytest until a test asks for an estimate.
"""
