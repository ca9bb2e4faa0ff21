from memplan.snapshot.records import Frame
from memplan.validate.records import Cause
from memplan.validate.streams import cause_of

UNWIND = (
    Frame("??", 0, "torch::unwind::unwind()"),
    Frame("", 0, "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"),
)
EMPTY = Frame("??", 0, "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)")


def test_the_innermost_operator_that_computes() -> None:
    frames = (
        *UNWIND,
        EMPTY,
        Frame("??", 0, "at::_ops::empty_like::call(at::Tensor const&)"),
        Frame("??", 0, "at::_ops::clone::redispatch(c10::DispatchKeySet, at::Tensor const&)"),
        Frame("??", 0, "at::_ops::einsum::call(std::basic_string_view<char>)"),
        Frame("/opt/python/site-packages/torch/functional.py", 407, "einsum"),
        Frame("/home/me/model.py", 147, "attend"),
    )
    assert cause_of(frames) == Cause("aten.clone", "", "/home/me/model.py:147")


def test_an_autograd_node_stands_for_what_has_no_python() -> None:
    frames = (
        *UNWIND,
        Frame("??", 0, "at::_ops::bmm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)"),
        Frame("??", 0, "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)"),
    )
    assert cause_of(frames) == Cause("aten.bmm", "BmmBackward0", "")


def test_a_library_workspace_says_so() -> None:
    frames = (
        *UNWIND,
        Frame("??", 0, "at::cuda::getCurrentCUDABlasHandle()"),
        Frame("??", 0, "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"),
    )
    assert cause_of(frames).what == "aten.mm (workspace)"


def test_a_kernel_without_an_operator() -> None:
    frames = (*UNWIND, Frame("??", 0, "at::native::templates::random_kernel<int>(at::TensorIteratorBase&)"))
    assert cause_of(frames).what == "at::native::templates::random_kernel"


def test_python_stacks_alone_name_the_function() -> None:
    frames = (Frame("/x/site-packages/torch/nn/modules/linear.py", 125, "forward"), Frame("/home/me/net.py", 9, "run"))
    assert cause_of(frames) == Cause("forward()", "", "/home/me/net.py:9")


def test_no_stack_is_no_cause() -> None:
    assert cause_of(()) == Cause("", "", "")


def test_mangled_names_are_read() -> None:
    # As c++filt reads them: at::_ops::mm::call(...), torch::autograd::generated::MmBackward0::apply(...).
    frames = (
        Frame("??", 0, "_ZN2at4_ops19empty_memory_format4callEN3c108ArrayRefINS2_6SymIntEEE"),
        Frame("??", 0, "_ZN2at4_ops2mm4callERKNS_6TensorES4_"),
        Frame("??", 0, "_ZN5torch8autograd9generated11MmBackward05applyEOSt6vectorIN2at6TensorESaIS4_EE"),
    )
    assert cause_of(frames) == Cause("aten.mm", "MmBackward0", "")
