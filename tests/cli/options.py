"""Which options ``estimate`` has, for tests of the commands that share them."""

ESTIMATE = {
    "target", "--gpu", "--profile-dir", "--alloc-conf",
    "--allow-network", "--trust-remote-code", "--timeout", "--as", "--config", "--loss", "--loop", "--no-fold",
    "--batch-size", "--seq-len", "--input", "--precision", "--optimizer", "--optimizer-impl", "--grad-accum",
    "--clip-grad-norm", "--attention", "--checkpoint", "--parallel", "--lora", "--quantize", "--float8",
    "--loss-chunks", "--keep-gradients", "--optimizer-in-backward", "--offload-activations", "--compress-activations",
    "--data-workers", "--prefetch", "--pin-memory", "--replay-buffer", "--replay-buffer-on", "--compile", "--mode",
    "--max-new-tokens", "--kv-block-size", "--data-dependent", "--assume",
    "--format", "-f", "--json", "--explain", "--quiet", "-q", "--fail-on", "--exit-zero",
}  # fmt: skip
CACHE = {"--cache-dir", "--no-cache"}
"""Of every command that looks into the cache."""
