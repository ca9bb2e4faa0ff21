"""Recurrent layers become one cuDNN call, cells one fused kernel; shapes from cudnn/RNN.cpp and cuda/RNN.cu."""

import pytest
import torch

from tests.tracing.cuda.tape import played

SINGLE = torch.float32


@pytest.mark.parametrize(
    ("make", "directions", "layers"),
    [
        (lambda: torch.nn.LSTM(8, 16, 2, bidirectional=True, dropout=0.1, device="cuda"), 2, 2),
        (lambda: torch.nn.GRU(8, 16, device="cuda"), 1, 1),
        (lambda: torch.nn.RNN(8, 16, 3, nonlinearity="relu", device="cuda"), 1, 3),
    ],
)
def test_a_sequence_is_one_call_forward_and_one_backward(make, directions, layers):
    with played() as tape:
        network, x = make(), torch.randn(5, 2, 8, device="cuda", requires_grad=True)
        tape.clear()
        out, _ = network(x)
        out.sum().backward()
        forward = tape.row("_cudnn_rnn.default").results
        assert forward[0] == ((5, 2, 16 * directions), SINGLE)
        assert forward[1] == ((layers * directions, 2, 16), SINGLE)
        assert forward[3][0][0] > 0
        gradients = tape.row("_cudnn_rnn_backward.default")
        assert [shape for shape, _ in gradients.results[-len(network._flat_weights) :]] == [
            tuple(weight.shape) for weight in network._flat_weights
        ]
        assert "mm" not in tape.ops
        assert "addmm" not in tape.ops


def test_the_weights_gradients_share_one_buffer():
    with played() as tape:
        network, x = torch.nn.LSTM(8, 16, device="cuda"), torch.randn(5, 2, 8, device="cuda")
        network(x)[0].sum().backward()
        buffers = {weight.grad.untyped_storage()._cdata for weight in network.parameters()}
        assert len(buffers) == 1
        (total,) = {weight.grad.untyped_storage().nbytes() for weight in network.parameters()}
        assert total == 4 * sum(weight.numel() for weight in network.parameters())
        assert tape.cuda is not None


def test_batch_first_gives_a_transposed_result():
    with played():
        network, x = torch.nn.GRU(8, 16, batch_first=True, device="cuda"), torch.randn(2, 5, 8, device="cuda")
        out, state = network(x)
        assert out.shape == (2, 5, 16)
        assert out.stride() == (16, 32, 1)
        assert state.shape == (1, 2, 16)


def test_inference_reserves_nothing():
    with played() as tape:
        network = torch.nn.LSTM(8, 16, device="cuda").eval()
        tape.clear()
        with torch.inference_mode():
            network(torch.randn(5, 2, 8, device="cuda"))
        assert tape.row("_cudnn_rnn.default").results[3][0] == (0,)


def test_projections_narrow_the_output_and_keep_the_cell():
    with played() as tape:
        network = torch.nn.LSTM(8, 16, proj_size=4, device="cuda")
        network(torch.randn(5, 2, 8, device="cuda"))
        out, hidden, cell = tape.row("_cudnn_rnn.default").results[:3]
        assert (out[0], hidden[0], cell[0]) == ((5, 2, 4), (1, 2, 4), (1, 2, 16))


def test_packed_batches_keep_their_rows():
    with played() as tape:
        network = torch.nn.LSTM(8, 16, device="cuda")
        data, sizes = torch.randn(7, 8, device="cuda"), torch.tensor([3, 2, 2])
        packed = torch.nn.utils.rnn.PackedSequence(data, sizes)
        state = torch.zeros(1, 3, 16, device="cuda"), torch.zeros(1, 3, 16, device="cuda")
        network(packed, state)
        assert tape.row("_cudnn_rnn.default").results[0] == ((7, 16), SINGLE)


def test_autocast_casts_input_states_and_weights():
    with played() as tape:
        network, x = torch.nn.GRU(8, 16, device="cuda"), torch.randn(5, 2, 8, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out, _ = network(x)
        assert out.dtype == torch.float16
        # Input and state are cast; the low weights are copied into one buffer.
        assert tape.ops.count("_to_copy") == 2
        assert tape.ops.count("new_zeros") == 1


def test_cells_are_fused():
    with played() as tape:
        x = torch.randn(2, 8, device="cuda")
        lstm, gru = torch.nn.LSTMCell(8, 16, device="cuda"), torch.nn.GRUCell(8, 16, device="cuda")
        tape.clear()
        hidden, cell = lstm(x)
        (hidden.sum() + cell.sum()).backward()
        assert tape.row("_thnn_fused_lstm_cell.default").results == (
            ((2, 16), SINGLE),
            ((2, 16), SINGLE),
            ((2, 64), SINGLE),
        )
        assert "_thnn_fused_lstm_cell_backward_impl" in tape.ops
        tape.clear()
        gru(x).sum().backward()
        assert tape.row("_thnn_fused_gru_cell.default").results == (((2, 16), SINGLE), ((2, 5 * 16), SINGLE))
        assert tape.row("_thnn_fused_gru_cell_backward.default").results[:3] == (
            ((2, 48), SINGLE),
            ((2, 48), SINGLE),
            ((2, 16), SINGLE),
        )
