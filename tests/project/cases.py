"""Project files, right and wrong."""

KEYS = """
gpus = ["h100-80g", "a100-40g"]
baseline = "memplan-baseline.json"
"""


JOB = """
name = "llama-8b-sft"
target = "preset:llama-3.1-8b"
batch-size = 8
max-peak = "72GiB"        # absolute budget
min-headroom = "5%"       # relative to usable memory
max-increase = "2%"       # against baseline
fail-on = "oom"           # oom | tight | unknown
informational = false
message = "Ask #training-infra before raising this."
"""


TYPED = {
    "batch_size": 8, "seq_len": 128, "precision": "bf16-mixed", "optimizer": "lion", "optimizer_impl": "loop",
    "grad_accum": 4, "clip_grad_norm": 1.5, "attention": "math", "checkpoint": "plan.json", "parallel": "fsdp=8,tp=2",
    "lora": "r=4,alpha=32,targets=q_proj+v_proj", "quantize": "nf4", "loss_chunks": 4, "optimizer_in_backward": True,
    "offload_activations": True, "compress_activations": "int8", "data_workers": 2, "prefetch": 3, "pin_memory": True,
    "compile": "inductor", "mode": "train", "max_new_tokens": 7, "data_dependent": "worst", "allow_network": True,
    "trust_remote_code": True, "inputs": ["x=float32[B,3,224,224]", "y=int64[B,S]"], "config": ["ds.json"],
}  # fmt: skip


BAD = """
gpuss = ["x"]
batch-size = 3
profile-dirs = ["nowhere"]
max-peak = "10 apples"
[[job]]
name = "llama-8b"
target = "modle.py"
batchsize = 8
lora = "rank=3"
input = ["x=float33[B]"]
parallel = "fsdp=x"
[[job]]
name = "llama-8b"
target = "model.py"
gpus = ["l4", "gpu-of-nobody"]
max-peak = 72
min-headroom = "150%"
max-increase = "-1%"
alloc-conf = "max_splitsize_mb:1"
prefetch = 3
config = "no.json"
checkpoint = "plan.json"
fail-on = "ooms"
timeout = 0
baseline = "x"
batch-size = 99999999999
input = ["x=int64[B]", "x=int64[S]"]
[[job]]
name = "two\\nlines"
target = "what is this"
gpus = []
"""
