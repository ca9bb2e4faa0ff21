"""Sizes as functions of the length."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from memplan.lifetime.sizes import PADDINGS, Polynomial, StepwiseSize, fit

lengths = st.lists(st.integers(1, 5000), min_size=4, max_size=8, unique=True)


def padded(length, to):
    return length if length % to == 0 else length + to - length % to


@given(lengths, st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.integers(1, 10**6))
def test_polynomials_are_found_and_hold_everywhere(traced, coefficients, elsewhere):
    def size(length):
        return sum(c * length**power for power, c in enumerate(coefficients))

    form, *_ = fit({length: size(length) for length in traced})
    assert isinstance(form, Polynomial)
    assert form.padding == 1
    assert form.at(elsewhere) == size(elsewhere)


@given(st.sampled_from(PADDINGS), st.integers(1, 4096), st.integers(0, 4096), st.integers(1, 10**6))
def test_padded_sizes_are_found_at_odd_lengths(padding, slope, constant, elsewhere):
    """Lengths in different residues of every padding tell one from another."""

    def size(length):
        return slope * padded(length, padding) + constant

    (form,) = fit({length: size(length) for length in (97, 355, 611, 1001, 1543, 2047, 2049, 3000)})
    assert isinstance(form, Polynomial)
    assert form.at(elsewhere) == size(elsewhere)


def test_the_figures_of_flash_attentions_backward():
    """Its accumulator is float32 [batch, heads, length rounded to 128, head size]."""
    form = fit({length: 4 * 12 * padded(length, 128) * 64 for length in (128, 349, 573, 800, 1024)})
    assert form == (Polynomial(coefficients=(Fraction(0), Fraction(4 * 12 * 64)), padding=128),)


@given(lengths, st.data())
def test_whatever_the_sizes_known_points_are_kept(traced, data):
    points = {length: data.draw(st.integers(0, 10**9)) for length in traced}
    forms = fit(points)
    assert all({length: form.at(length) for length in traced} == points for form in forms)


def test_a_form_needs_a_point_to_spare():
    """A line through two points and a parabola through three say nothing."""
    assert isinstance(fit({1: 5, 2: 7})[0], StepwiseSize)
    assert isinstance(fit({1: 5, 2: 7, 3: 20})[0], StepwiseSize)
    assert isinstance(fit({1: 5, 2: 7, 3: 9})[0], Polynomial)
    assert isinstance(fit({1: 5})[0], StepwiseSize)
    assert isinstance(fit({1: 1, 2: 8, 3: 27, 4: 64, 5: 125})[0], StepwiseSize)


def test_unknown_forms_take_the_next_longer_length():
    (form,) = fit({10: 100, 20: 700, 30: 800, 40: 5000})
    assert [form.at(n) for n in (1, 10, 11, 20, 29, 40, 99)] == [100, 100, 700, 700, 800, 5000, 5000]


def test_lengths_that_do_not_tell_paddings_apart_leave_both():
    """32 and 16 give the same at these lengths; at 200 one pads to 224, the other to 208."""
    forms = fit({n: 32 * padded(n, 32) for n in (182, 245, 311, 378, 412)})
    assert {16, 32} <= {form.padding for form in forms}
    assert len({form.at(200) for form in forms}) > 1
    decided = fit({n: 32 * padded(n, 32) for n in (182, 200, 245, 311, 378, 412)})
    assert next(form.padding for form in decided) == 32
