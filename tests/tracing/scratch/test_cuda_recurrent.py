"""Recurrent layers' scratch: sizes as an H100 recorded them (benchmarks/gpu/results, 2026-11-23), and laws."""

import pytest
import torch

from memplan.tracing.cuda.rnn_shapes import SHAPES
from tests.tracing.scratch.calls import A100, H100, allocated, meta, script

LSTM, GRU = 2, 3
GATES = {LSTM: 4, GRU: 3}


class Layer:
    """A stack of layers over meta tensors."""

    def __init__(self, mode, *, width, batch, steps, layers=2, both=False, dtype=torch.float32, biases=True):
        directions = 2 if both else 1
        self.options = mode, width, 0, layers
        self.both, self.dtype, self.stride = both, dtype, 4 if biases else 2
        self.source = meta(batch, steps, width, dtype=dtype)
        self.state = meta(layers * directions, batch, width, dtype=dtype)
        self.cell = self.state if mode == LSTM else None
        rows = GATES[mode] * width
        self.weights = []
        for layer in range(layers):
            inputs = width if layer == 0 else directions * width
            shapes = [(rows, inputs), (rows, width), *([(rows,), (rows,)] if biases else [])]
            self.weights += [meta(*shape, dtype=dtype) for _ in range(directions) for shape in shapes]
        self.output = meta(steps, batch, directions * width, dtype=dtype).transpose(0, 1)

    def forward(self, *, dropout=0.0, train=True, device=H100):
        args = (self.source, self.weights, self.stride, None, self.state, self.cell, *self.options)
        args += (True, dropout, train, self.both, [], None)
        return script("aten._cudnn_rnn.default", *args, device=device), SHAPES["_cudnn_rnn"](*args)

    def backward(self, *, gradient=None, device=H100):
        given = (self.output, gradient, None, None)
        args = (self.source, self.weights, self.stride, None, self.state, self.cell, *given, *self.options)
        args += (True, 0.0, True, self.both, [], None, None, [True, False, False, True])
        return script("aten._cudnn_rnn_backward.default", *args, device=device)


RECORDED = [
    (Layer(LSTM, width=256, batch=128, steps=64), 0.1, 82_314_496, 92_537_088),
    (Layer(LSTM, width=256, batch=128, steps=64, dtype=torch.bfloat16), 0.1, 49_546_496, 46_399_744),
    (Layer(GRU, width=128, batch=256, steps=64, both=True), 0.0, 274_073_856, 218_104_064),
]


@pytest.mark.parametrize(("layer", "dropout", "work", "reserve"), RECORDED)
def test_work_space_and_reserve_are_as_recorded(layer, dropout, work, reserve):
    found, results = layer.forward(dropout=dropout)
    copy = layer.source.numel() * layer.source.element_size()
    assert allocated(found)[0] == copy
    assert results[3].nbytes == reserve
    (line,) = found.between[3,]
    assert line.nbytes == work
    assert line.most > 2 * work
    elsewhere = layer.forward(dropout=dropout, device=A100)[0].between[3,][0]
    assert (elsewhere.nbytes, elsewhere.most) == (0, line.most)


def reserve(mode, sizes, hidden, layers, *, project=0, dropout=0.0, both=False, dtype=torch.float32, packed=()):
    """Reserve of layers over steps, a batch and inputs; or over the rows of packed sequences."""
    shape = (sum(packed), sizes[-1]) if packed else sizes
    state = meta(layers * (2 if both else 1), sizes[1], hidden, dtype=dtype)
    args = (meta(*shape, dtype=dtype), [], 4, meta(1, dtype=dtype), state, state if mode == LSTM else None)
    args += (mode, hidden, project, layers, False, dropout, True, both, list(packed), None)
    return SHAPES["_cudnn_rnn"](*args)[3].nbytes


HALF = torch.bfloat16


def test_the_reserve_is_what_an_h200_kept():
    # Projections, masks of dropout, parts that fill no 32 bytes (benchmarks/gpu/results/cudnn, 2026-11-27).
    assert reserve(LSTM, (35, 2, 512), 1024, 2, project=512) == 4_014_336
    assert reserve(LSTM, (5, 64, 128), 128, 4, project=64, dtype=HALF) == 2_375_936
    assert reserve(LSTM, (256, 1, 512), 512, 2, dropout=0.3) == 5_783_808
    assert reserve(GRU, (128, 256, 16), 16, 4, dropout=0.3, both=True, dtype=HALF) == 57_409_792
    assert reserve(0, (1, 20, 1500), 1500, 4, dropout=0.3) == 851_584
    assert reserve(LSTM, (5, 1, 256), 50, 4) == 23_264
    # Without dropout nothing of a state is kept.
    assert reserve(LSTM, (1, 256, 256), 256, 4, both=True) == 12_058_880


def test_masks_of_packed_sequences_are_as_long_as_the_longest():
    lengths = torch.linspace(35, 17, 32).long().tolist()
    packed = [sum(length > step for length in lengths) for step in range(35)]
    masks = 2 * 35 * 32 * 256 // 8
    plain = reserve(LSTM, (35, 32, 256), 256, 3, packed=packed)
    assert reserve(LSTM, (35, 32, 256), 256, 3, packed=packed, dropout=0.3) == plain + masks


@pytest.mark.parametrize(
    ("layer", "dropout", "seen"),
    [
        (Layer(LSTM, width=650, batch=32, steps=35), 0.0, 62_953_728),
        (Layer(LSTM, width=512, batch=1, steps=256), 0.3, 37_265_696),
        (Layer(LSTM, width=100, batch=1, steps=10, both=True), 0.3, 35_293_120),
        (Layer(GRU, width=1500, batch=32, steps=35, dtype=HALF), 0.0, 90_073_728),
        (Layer(GRU, width=256, batch=8, steps=35, both=True, dtype=HALF), 0.0, 39_608_640),
    ],
)
def test_work_space_is_nearly_what_an_h200_took(layer, dropout, seen):
    assert layer.forward(dropout=dropout)[0].between[3,][0].nbytes == pytest.approx(seen, rel=0.02)


def test_weights_of_bfloat16_are_copied_into_a_buffer_of_their_own():
    assert Layer(LSTM, width=16, batch=20, steps=64, dtype=HALF).forward()[1][4].nbytes == 2 * 2 * (
        2 * 64 * 16 + 2 * 64
    )


def test_backward_takes_it_twice_and_zeros_for_gradients_that_nobody_gave():
    layer = RECORDED[2][0]
    work = layer.forward()[0].between[3,][0].nbytes
    state, copy, gradient = 4 * 256 * 128 * 4, 8_388_608, 16_777_216
    found = layer.backward(gradient=meta(256, 64, 256))
    assert allocated(found) == [state, copy, gradient, work, copy, work]
    # A gradient that lies as the output does is not copied.
    assert allocated(layer.backward(gradient=layer.output)) == [state, copy, work, copy, work]


def test_the_dropout_state_is_made_once_for_the_threads_of_the_device():
    layer = RECORDED[0][0]
    (kept,) = [line for line in layer.forward(dropout=0.1)[0].before if line.action == "keep"]
    assert kept.nbytes == 6_488_064
    assert all(line.action != "keep" for line in layer.forward(dropout=0.1, train=False)[0].before)


def test_four_layers_of_a_gru_reserve_to_those_of_an_lstm_as_27_to_23():
    # 864,000,000 and 736,000,000 bytes on a P100 (pytorch issue 2895).
    sizes = {}
    for mode in (GRU, LSTM):
        reserve = Layer(mode, width=500, batch=160, steps=100, layers=4).forward()[1][3]
        sizes[mode] = reserve.nbytes
    assert sizes[GRU] / sizes[LSTM] == pytest.approx(27 / 23, rel=0.005)


def test_gradients_without_biases_are_copies_of_a_buffer_with_room_for_them():
    layer = Layer(LSTM, width=8, batch=2, steps=3, layers=1, biases=False)
    found = layer.backward(gradient=layer.output)
    assert 4 * (2 * 32 * 8 + 2 * 32) in allocated(found)
    # Both lie there while the copies are made.
    assert [line.key for line in found.between[3, 0]][-2:] == ["gradients of the weights", "work space"]
    assert found.after == ()


def test_inference_reserves_nothing_and_takes_as_much():
    layer = Layer(LSTM, width=200, batch=2, steps=10, dtype=torch.float16)
    found, results = layer.forward(train=False)
    assert results[3].nbytes == 0
    assert found == layer.forward()[0]
