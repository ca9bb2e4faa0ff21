"""Laws that every shipped profile obeys, and figures that others published of the same cards."""

import re
from pathlib import Path

import pytest

from memplan.hardware.catalog import list_profiles, load_profile, normalise
from memplan.hardware.profile import GpuProfile
from memplan.units import GIB, MIB

FOLDER = Path(__file__).parents[2] / "hardware_profiles"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
PROMISED = {
    "gtx-1650", "rtx-3060", "rtx-3070", "rtx-3080", "rtx-3080-ti", "rtx-3090", "rtx-3090-ti", "rtx-4060-ti-16g",
    "rtx-4070-ti-super", "rtx-4080", "rtx-4090", "rtx-5070-ti", "rtx-5080", "rtx-5090", "t4",
    "v100-16g", "v100-32g", "a10", "a10g", "a30", "a40", "a100-40g",
    "a100-80g", "a100-80g-pcie", "a6000", "rtx-6000-ada", "rtx-pro-6000", "rtx-pro-6000-se", "l4", "l40s",
    "h100-80g", "h100-80g-pcie", "h100-nvl-94g", "h200", "gh200-96g", "b200", "gb200",
    "mi250x", "mi300x", "mi325x", "cpu",
}  # fmt: skip
FIGURES = {
    "total_bytes", "usable_bytes", "context_bytes", "cublas_workspace_bytes", "sm_count", "threads_per_sm",
    "memory_bandwidth", "host_link_bandwidth", "peer_link_bandwidth", "peak_flops",
}  # fmt: skip
each_profile = pytest.mark.parametrize("profile", [load_profile(name) for name in NAMES], ids=NAMES)
each_gpu = pytest.mark.parametrize(
    "profile", [load_profile(name) for name in NAMES if name != "cpu"], ids=lambda profile: profile.name
)


def test_every_promised_gpu_is_there() -> None:
    assert set(NAMES) >= PROMISED
    assert {profile.name for profile in list_profiles()} == set(NAMES)


@each_profile
def test_every_figure_has_a_source_with_a_year(profile: GpuProfile) -> None:
    assert profile.sources.keys() >= FIGURES
    assert profile.compute_capability is None or "compute_capability" in profile.sources
    for key, source in profile.sources.items():
        if source.startswith("see "):
            assert source.removeprefix("see ") in profile.sources, key
        elif profile.kind != "cpu":
            assert re.search(r"\b20[12]\d\b", source), f"{key}: no year in {source!r}"


@each_gpu
def test_a_total_says_whether_it_was_seen(profile: GpuProfile) -> None:
    assert profile.sources["total_bytes"].startswith(("measured: ", "estimated: "))


@each_gpu
def test_memory_sizes_are_ordered(profile: GpuProfile) -> None:
    assert 0 < profile.context_low_bytes <= profile.context_bytes <= profile.context_high_bytes <= 2 * GIB
    assert profile.context_high_bytes < profile.usable_bytes <= profile.total_bytes
    assert profile.total_bytes - profile.usable_bytes <= 64 * MIB


@pytest.mark.parametrize(
    "profile", [profile for profile in list_profiles() if "GB" in profile.title], ids=lambda profile: profile.name
)
def test_a_card_shows_a_little_less_than_its_name(profile: GpuProfile) -> None:
    nominal = int(profile.title.removesuffix("GB").split()[-1]) * GIB
    assert 0.9 * nominal < profile.total_bytes < nominal


@each_gpu
def test_the_cublas_workspace_follows_pytorchs_rule(profile: GpuProfile) -> None:
    # CublasHandlePool.cpp, parseChosenWorkspaceSize: CUDA by capability major, ROCm by architecture.
    if profile.kind == "rocm":
        expected = {"mi250x": 32, "mi300x": 128, "mi325x": 128}[profile.name] * 1024 * 1024
    else:
        assert profile.compute_capability is not None
        # ":4096:2:16:8" is two buffers of 4096 KiB and eight of 16 KiB.
        expected = 4096 * 8 * 1024 if profile.compute_capability[0] in {9, 10, 12} else (2 * 4096 + 8 * 16) * 1024
    assert profile.cublas_workspace_bytes == expected


@each_gpu
def test_threads_per_multiprocessor_follow_the_capability(profile: GpuProfile) -> None:
    # CUDA C++ Programming Guide, "maximum number of resident threads per SM"; AMD: 32 wavefronts of 64 threads.
    guide = {(7, 0): 2048, (7, 5): 1024, (8, 0): 2048, (8, 6): 1536, (8, 9): 1536, (9, 0): 2048, (10, 0): 2048,
             (12, 0): 1536}  # fmt: skip
    assert profile.threads_per_sm == (32 * 64 if profile.kind == "rocm" else guide[profile.compute_capability])


@each_gpu
def test_narrower_dtypes_are_not_slower(profile: GpuProfile) -> None:
    rates = profile.peak_flops
    assert rates["fp32"] < rates["fp16"] == rates.get("bf16", rates["fp16"])
    assert rates["fp16"] <= rates.get("fp8", rates["fp16"]) <= rates.get("int8", float("inf"))
    assert rates["fp32"] <= rates.get("tf32", rates["fp32"]) <= rates["fp16"]


@each_gpu
def test_rates_are_in_the_range_of_real_hardware(profile: GpuProfile) -> None:
    assert 100e9 < profile.memory_bandwidth < 10e12
    assert 10e9 < profile.host_link_bandwidth < profile.memory_bandwidth
    assert 0 <= profile.peer_link_bandwidth <= 2e12
    assert all(1e12 < rate < 1e16 for rate in profile.peak_flops.values())


def test_no_name_means_two_gpus() -> None:
    names = [normalise(name) for profile in list_profiles() for name in (profile.name, *profile.aliases)]
    assert len(names) == len(set(names))


def test_cpu_has_no_limits_and_no_cuda() -> None:
    cpu = load_profile("cpu")
    assert (cpu.kind, cpu.total_bytes, cpu.usable_bytes, cpu.context_bytes) == ("cpu", 0, 0, 0)
    assert (cpu.cublas_workspace_bytes, cpu.compute_capability, cpu.sm_count) == (0, None, 0)


def test_the_h100_as_others_describe_it() -> None:
    h100 = load_profile("h100-80g")
    # vLLM pull 10511 prints "79.22GiB" for the whole card; an older driver than the profile's.
    assert h100.total_bytes == pytest.approx(79.22 * GIB, rel=2e-3)
    assert h100.compute_capability == (9, 0)
    # deviceQuery of the SXM5 card: 132 multiprocessors, 16,896 CUDA cores, 2,048 threads each.
    assert h100.sm_count * 128 == 16_896
    assert h100.threads_per_sm == 2048
    # Memory clock 2,619 MHz, double data rate, 5,120 bit bus.
    assert h100.memory_bandwidth == pytest.approx(2 * 2619e6 * 5120 / 8, rel=1e-2)
    assert h100.peer_link_bandwidth == 18 * 50e9  # 18 NVLink 4 links of 50 GB/s.
    assert h100.cublas_workspace_bytes == 33_554_432


@pytest.mark.parametrize(
    ("name", "dtype", "rate"),
    [  # Lightning Fabric's own table, throughput.py at commit 0810121, taken from the vendor's pages by its authors.
        ("h100-80g", "fp32", 67e12),
        ("h100-80g", "bf16", 1.979e15 / 2),
        ("h100-80g", "int8", 3.958e15 / 2),
        ("h100-80g-pcie", "fp32", 51e12),
        ("h100-80g-pcie", "bf16", 1.513e15 / 2),
        ("a100-80g", "fp32", 19.5e12),
        ("a100-40g", "bf16", 312e12),
        ("a10", "bf16", 125e12),
        ("v100-32g", "fp32", 15.7e12),
        ("v100-16g", "fp16", 125e12),
        ("t4", "fp32", 8.1e12),
        ("t4", "fp16", 65e12),
        ("t4", "int8", 130e12),
        # torchtitan, get_peak_flops, 2025: bf16 without sparsity.
        ("h100-80g", "bf16", 989e12),
        ("h100-nvl-94g", "bf16", 835e12),
        ("h200", "bf16", 989e12),
        ("b200", "bf16", 2.25e15),
        ("mi250x", "bf16", 191.5e12),
        ("l40s", "bf16", 362e12),
        # nanochat, pull 147: bf16 without sparsity, GeForce with FP32 accumulation.
        ("gb200", "bf16", 2.5e15),
        ("a40", "bf16", 149.7e12),
        ("a30", "bf16", 165e12),
        ("l4", "bf16", 121e12),
        ("mi300x", "bf16", 1.3074e15),
        ("mi325x", "bf16", 1.3074e15),
        ("rtx-5090", "bf16", 209.5e12),
        ("rtx-4090", "bf16", 165.2e12),
        ("rtx-3090", "bf16", 71e12),
        # gmasse/gpu-specs.
        ("h100-80g-pcie", "tf32", 756e12 / 2),
        ("h100-80g-pcie", "fp8", 3026e12 / 2),
        ("a100-80g-pcie", "tf32", 156e12),
        ("a100-80g", "int8", 624e12),
        ("a10", "tf32", 62.5e12),
        ("a10", "int8", 250e12),
        ("l4", "fp8", 242e12),
        ("l40s", "int8", 733e12),
        # hmc-tech.com: the GB200 superchip halved; clock x cores x operations elsewhere.
        ("gb200", "fp32", 160.04e12 / 2),
        ("gb200", "tf32", 2.5e15 / 2),
        ("h100-80g", "tf32", 494.72e12),
        ("rtx-4090", "fp8", 330.3e12),
        ("rtx-4090", "int8", 660.6e12),
        ("rtx-5080", "fp32", 56.28e12),
        # AMD lab notes: FLOP per clock and compute unit, times 110 units at 1.7 GHz.
        ("mi250x", "fp32", 256 * 110 * 1.7e9),
        ("mi250x", "int8", 1024 * 110 * 1.7e9),
        # The A10G's brief, by way of three public tables: not the A10's 125.
        ("a10g", "bf16", 70e12),
        ("a6000", "bf16", 309.7e12 / 2),
        ("rtx-6000-ada", "bf16", 364.2e12),
        ("rtx-pro-6000", "bf16", 503.8e12),
    ],
)
def test_peak_rates_agree_with_a_second_table(name: str, dtype: str, rate: float) -> None:
    assert load_profile(name).peak_flops[dtype] == pytest.approx(rate, rel=5e-3)


GEFORCE = [name for name in NAMES if re.match(r"rtx-[345]0", name)]


@pytest.mark.parametrize("name", GEFORCE)
def test_geforce_tensor_rates_are_those_with_fp32_accumulation(name: str) -> None:
    # NVIDIA halves them against accumulation in FP16: fp16 is twice fp32 there, four times on other GA102 and AD102.
    rates = load_profile(name).peak_flops
    assert rates["tf32"] == rates["fp32"]
    assert rates["fp16"] == pytest.approx(2 * rates["fp32"], rel=5e-3)
    assert rates.get("fp8", 2 * rates["fp16"]) == pytest.approx(2 * rates["fp16"], rel=5e-3)
    assert rates["int8"] == pytest.approx(4 * rates["fp16"], rel=5e-3)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [  # Public tables of memory bandwidth; B200: the clock and the bus width that its driver reports, pytorch/ao#4002.
        ("gtx-1650", 128.0),
        ("rtx-3060", 360.0), ("rtx-3070", 448.0), ("rtx-3080", 760.3), ("rtx-3080-ti", 912.4), ("rtx-3090", 936.2),
        ("rtx-3090-ti", 1008.0), ("rtx-4060-ti-16g", 288.0), ("rtx-4070-ti-super", 672.3), ("rtx-4080", 716.8),
        ("rtx-4090", 1008.0), ("a10", 600), ("a10g", 600), ("a40", 696), ("a6000", 768), ("a100-40g", 1555),
        ("a100-80g", 2039), ("a100-80g-pcie", 1935), ("l4", 300), ("l40s", 864), ("t4", 320), ("v100-32g", 900),
        ("h100-80g", 3350), ("h200", 4800), ("b200", 3.996 * 2 * 7680 / 8), ("rtx-pro-6000-se", 1597),
    ],
)  # fmt: skip
def test_memory_bandwidths_agree_with_a_second_table(name: str, gigabytes: float) -> None:
    assert load_profile(name).memory_bandwidth == pytest.approx(gigabytes * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "cores"),
    [  # CUDA cores as the vendor advertises them.
        ("gtx-1650", 896),
        ("rtx-3060", 3584), ("rtx-3070", 5888), ("rtx-3080", 8704), ("rtx-3080-ti", 10240), ("rtx-3090", 10496),
        ("rtx-3090-ti", 10752), ("rtx-4060-ti-16g", 4352), ("rtx-4070-ti-super", 8448), ("rtx-4080", 9728),
        ("rtx-4090", 16384), ("rtx-5070-ti", 8960), ("rtx-5080", 10752), ("rtx-5090", 21760), ("t4", 2560),
        ("v100-16g", 5120), ("v100-32g", 5120), ("a10", 9216), ("a10g", 10240), ("a30", 3584), ("a40", 10752),
        ("a6000", 10752), ("a100-40g", 6912), ("a100-80g", 6912), ("l4", 7424), ("l40s", 18176),
        ("rtx-6000-ada", 18176), ("rtx-pro-6000", 24064), ("h100-80g-pcie", 14592), ("h200", 16896),
    ],
)  # fmt: skip
def test_multiprocessors_hold_the_advertised_cores(name: str, cores: int) -> None:
    profile = load_profile(name)
    per_multiprocessor = 64 if profile.compute_capability in {(7, 0), (7, 5), (8, 0)} else 128
    assert profile.sm_count * per_multiprocessor == cores


@pytest.mark.parametrize(
    ("name", "gib"),
    [  # "total capacity" in PyTorch's out-of-memory messages; GitHub issues that name the card.
        ("rtx-5090", 31.37),  # Wan-Video/Wan2.1#465, 2025
        ("a100-80g", 79.14),  # lianqi1008/Control-GIC#6, 2025
        ("a100-40g", 39.50),  # TianheWu/CoSeR#10, 2025
        ("a30", 23.53),  # google/RB-Modulation#5, 2024
        ("rtx-4090", 23.64),  # 3DTopia/Phidias-Diffusion#8, 2025
        # Messages quoted in public repositories that name the card, read in November 2026; the smallest of each.
        ("gb200", 184.31),
        ("b200", 178.35),
        ("h200", 139.72),
        ("h100-80g", 79.18),
        ("h100-nvl-94g", 93.02),
        ("a100-80g-pcie", 79.25),
        ("rtx-pro-6000-se", 94.97),
        ("a6000", 47.40),
        ("l40s", 44.39),
        ("v100-32g", 31.73),
        ("rtx-5090", 31.34),
        ("rtx-3090", 23.56),
        ("a10", 21.99),
        ("a10g", 21.98),
        ("l4", 21.96),
        ("rtx-4060-ti-16g", 15.57),
        ("rtx-5080", 15.46),
        ("t4", 14.56),
        ("a100-40g", 39.38),
        ("rtx-3080", 9.65),  # With a driver of 2023: 9.78.
        ("mi300x", 191.69),
    ],
)
def test_totals_agree_with_out_of_memory_messages(name: str, gib: float) -> None:
    # Never above what a user saw (bar the message's rounding), and within what drivers differ by.
    assert 0.99 * gib <= load_profile(name).total_bytes / GIB <= gib + 0.005


@pytest.mark.parametrize(
    "profile", [each for each in list_profiles() if each.kind != "cpu"], ids=lambda each: each.name
)
def test_every_gpu_has_a_name_with_its_size(profile: GpuProfile) -> None:
    sizes = [int(found[1]) for name in (profile.name, *profile.aliases) if (found := re.search(r"-(\d+)g$", name))]
    assert sizes
    # Advertised as 10^9 or 2^30 bytes, of which a driver keeps some.
    assert all(0.85 * size * GIB < profile.total_bytes <= size * GIB for size in sizes)
