"""The noise scale where it is known: linear regression on Gaussian rows, gradients drawn from a known covariance."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from memplan.errors import UsageError
from memplan.runtime.adaptive.gradient_norms import GradientNorms, squared_norm
from memplan.runtime.adaptive.micro_batch import AutoMicroBatch
from memplan.runtime.adaptive.noise_scale import GradientMoments, NoiseScale, moments_of, moments_of_parts, with_step

WIDTH = 6


def drawn(steps: int, sizes: list[int], mean: float, spread: float, seed: int) -> NoiseScale:
    """The estimate from gradients that are drawn: |G|² = WIDTH · mean², tr(Σ) = WIDTH · spread²."""
    random = np.random.default_rng(seed)
    scale = NoiseScale(decay=1.0)
    for _ in range(steps):
        parts = [random.normal(mean, spread, (size, WIDTH)).mean(axis=0) for size in sizes]
        whole = sum(part * size for part, size in zip(parts, sizes, strict=True)) / sum(sizes)
        moments = moments_of_parts([float(part @ part) for part in parts], sizes, whole=float(whole @ whole))
        scale = with_step(scale, moments)
    return scale


@pytest.mark.parametrize("sizes", [[4, 4, 4, 4], [1, 7], [3, 3, 2, 1], [16, 16]])
def test_gradients_from_a_known_covariance(sizes: list[int]) -> None:
    scale = drawn(20_000, sizes, mean=0.5, spread=2.0, seed=3)
    squared, trace = scale.moments
    assert squared == pytest.approx(WIDTH * 0.25, rel=0.05)
    assert trace == pytest.approx(WIDTH * 4.0, rel=0.03)
    assert scale.samples == pytest.approx(16.0, rel=0.08)


def test_linear_regression_with_rows_whose_moments_are_known() -> None:
    # Loss (x·w - x·t - e)²/2 with x ~ N(0, I), e ~ N(0, s²): for d = w - t the gradient of a row is x(x·d - e).
    # Its mean is d; E|x|²(x·d)² = (n + 2)|d|², so that tr(Σ) = (n + 2)|d|² + n s² - |d|².
    target, noise = torch.linspace(-1, 1, WIDTH, dtype=torch.float64), 0.7
    model = nn.Linear(WIDTH, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    distance = float(target @ target)
    expected = ((WIDTH + 1) * distance + WIDTH * noise**2) / distance
    random = torch.Generator().manual_seed(5)

    def loss_for(rows: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (model(rows[0])[:, 0] - rows[1]).pow(2).mean() / 2

    scale = NoiseScale(decay=1.0)
    with GradientNorms(model) as norms:

        def backward(loss: torch.Tensor) -> None:
            loss.backward()
            norms.end_of_pass()

        step = AutoMicroBatch(model, loss_for, micro_batch=4, backward=backward, patience=10**6)
        for _ in range(1500):
            inputs = torch.randn(16, WIDTH, generator=random, dtype=torch.float64)
            labels = inputs @ target + noise * torch.randn(16, generator=random, dtype=torch.float64)
            model.zero_grad()
            done = step((inputs, labels))
            # The wrapper scales the loss of a part by its share, and the gradient with it.
            parts = [squared / (count / 16) ** 2 for squared, count in zip(norms.squared(), done.samples, strict=True)]
            scale = with_step(scale, moments_of_parts(parts, list(done.samples), whole=squared_norm(model)))
    assert scale.moments.squared_norm == pytest.approx(distance, rel=0.05)
    assert scale.samples == pytest.approx(expected, rel=0.1)


@given(squared=st.floats(0.01, 100), trace=st.floats(0.01, 100), small=st.integers(1, 100), factor=st.integers(2, 50))
def test_expectations_are_inverted_exactly(squared: float, trace: float, small: int, factor: int) -> None:
    big = small * factor
    moments = moments_of(small=squared + trace / small, small_batch=small, big=squared + trace / big, big_batch=big)
    assert moments == pytest.approx((squared, trace), rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=30), st.floats(0.1, 1.0))
def test_averages_have_no_bias_from_their_beginning(steps: list[tuple[float, float]], decay: float) -> None:
    scale = NoiseScale(decay=decay)
    for step in steps:
        scale = with_step(scale, GradientMoments(*step))
    weights = [decay ** (len(steps) - 1 - index) for index in range(len(steps))]
    for place in (0, 1):
        mean = sum(w * step[place] for w, step in zip(weights, steps, strict=True)) / sum(weights)
        assert scale.moments[place] == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert scale.steps == len(steps)


def test_what_is_not_known_is_not_a_number() -> None:
    assert not NoiseScale().is_known
    assert all(math.isnan(moment) for moment in NoiseScale().moments)
    negative = with_step(NoiseScale(), GradientMoments(-0.1, 3.0))
    with pytest.raises(UsageError, match="not known after 1 steps"):
        _ = negative.samples
    with pytest.raises(UsageError, match="two sizes"):
        moments_of(small=1, small_batch=4, big=1, big_batch=4)
    with pytest.raises(UsageError, match="two sizes"):
        moments_of_parts([1.0], [4], whole=1.0)
    with pytest.raises(UsageError, match=r"decay.*\n.*no numbers"):
        with_step(NoiseScale(decay=0), GradientMoments(math.inf, 1.0))


def test_norms_are_of_each_pass_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)).double()
    inputs = torch.randn(4, 3, dtype=torch.float64)
    with GradientNorms(model) as norms:
        for part in inputs:
            model(part).sum().backward()
            norms.end_of_pass()
    expected = []
    for part in inputs:
        made = torch.autograd.grad(model(part).sum(), list(model.parameters()))
        expected.append(float(sum(gradient.pow(2).sum() for gradient in made)))
    assert norms.squared() == pytest.approx(expected, rel=1e-12)
    assert norms.squared() == []
    before = squared_norm(model)
    model(inputs).sum().backward()
    assert norms.squared() == []
    assert squared_norm(model) != before
