"""A profile of a real GPU."""

from memplan.units import Bytes
from memplan.validate.records import DeviceFacts

H200 = DeviceFacts(
    kind="cuda",
    index=0,
    name="NVIDIA H200",
    total_bytes=Bytes(150_109_880_320),
    free_bytes=Bytes(149_000_000_000),
    host_free_bytes=Bytes(100_000_000_000),
    capability=(9, 0),
    sm_count=132,
    threads_per_sm=2048,
    versions={"torch": "2.11.0", "cuda": "13.0", "driver": "580.159.03"},
)
