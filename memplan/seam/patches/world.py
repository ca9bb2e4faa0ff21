"""What lets ordinary programs run on fake tensors, whatever the device."""

from memplan.seam.patch import Patch, patch, patches

FAKE_TENSOR = "torch._subclasses.fake_tensor.FakeTensor"
"""The class of fake tensors."""

MODULE_APPLY = patch(
    "torch.nn.Module._apply",
    why="fake parameters can be moved and cast in place",
    source="torch/nn/modules/module.py Module._apply",
)
SWAPS_PARAMETERS = patch(
    "torch.__future__.get_swap_module_params_on_conversion",
    why="fake parameters are moved and cast in place where a program wants them swapped, too",
    source="torch/__future__.py get_swap_module_params_on_conversion",
)
LOADER_ITERATOR = patch(
    "torch.utils.data.DataLoader._get_iterator",
    why="batches are loaded in the traced process",
    source="torch/utils/data/dataloader.py DataLoader._get_iterator",
)
PAD_PACKED_SEQUENCE = patch(
    "torch._VF._pad_packed_sequence",
    why="packed sequences are padded as on the device",
    source="aten/src/ATen/native/PackedSequence.cpp _pad_packed_sequence",
)

LOADER_FETCH = "torch.utils.data.dataloader._BaseDataLoaderIter.__next__"
"""How a data loader gets its next batch."""
PATCHES: tuple[Patch, ...] = (
    MODULE_APPLY,
    SWAPS_PARAMETERS,
    LOADER_ITERATOR,
    PAD_PACKED_SEQUENCE,
    *patches(
        FAKE_TENSOR,
        "__deepcopy__",
        "__format__",
        why="fake tensors can be copied and printed",
        source="torch/_tensor.py Tensor.__deepcopy__, Tensor.__format__",
    ),
    *patches(
        FAKE_TENSOR,
        "__new__",
        why="a program can make a parameter of another one's class and attributes",
        source="torch/nn/parameter.py Parameter.__new__",
    ),
    *patches(
        FAKE_TENSOR,
        "get_nested_int",
        required=False,
        why="nested tensors of fake ones have ragged sizes without symbols",
        source="torch/nested/_internal/nested_tensor.py get_tensor_symint",
    ),
    *patches(
        FAKE_TENSOR,
        "numpy",
        "__reduce_ex__",
        "share_memory_",
        why="fake tensors become arrays and pickles, and are shared with other processes",
        source="torch/csrc/utils/tensor_numpy.cpp tensor_to_numpy; torch/_tensor.py Tensor.__reduce_ex__ …",
    ),
    *patches(
        "torch.jit",
        "script",
        "trace",
        why="functions that call what memplan replaces run as Python where TorchScript cannot compile them",
        source="torch/jit/_script.py script, torch/jit/_trace.py trace",
    ),
    *patches("torch", "save", why="no file is overwritten with fake tensors", source="torch/serialization.py save"),
    *patches("torch", "load", why="a program reads what it saved", source="torch/serialization.py load"),
    *patches(
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        "__next__",
        why="a program's data loaders hand over real data",
        source="torch/utils/data/dataloader.py _BaseDataLoaderIter.__next__",
    ),
    *patches(
        "torch.utils.data.DataLoader",
        "__iter__",
        why="a program's data loaders hand over real data",
        source="torch/utils/data/dataloader.py DataLoader.__iter__",
    ),
    *patches(
        "torch.distributed",
        "init_process_group",
        "barrier",
        required=False,
        why="a program finds the ranks that memplan plays",
        source="torch/distributed/distributed_c10d.py",
    ),
    *patches(
        "torch.multiprocessing",
        "spawn",
        "start_processes",
        why="a program's first rank runs where it is traced",
        source="torch/multiprocessing/spawn.py",
    ),
    *patches(
        "torch.hub",
        "load_state_dict_from_url",
        "list",
        why="a program's models are built without downloads",
        source="torch/hub.py",
    ),
    *patches(
        "torch.nn.Module",
        "__call__",
        why="evaluations that repeat themselves are traced once",
        source="torch/nn/modules/module.py Module.__call__",
    ),
    *patches(
        "torch.nn.Module",
        "register_parameter",
        why="parameters made of a program's own data can be moved to a GPU that is played",
        source="torch/nn/modules/module.py Module.register_parameter",
    ),
    *patches(
        "torch.nn.Module",
        "load_state_dict",
        why="weights that were not downloaded are not missed",
        source="torch/nn/modules/module.py Module.load_state_dict",
    ),
    *patches(
        "torch.nn.Module",
        "__call__",
        why="a program's model is known before its own forward is looked up",
        source="torch/nn/modules/module.py Module._wrapped_call_impl",
    ),
    *patches(
        "torch.optim.Optimizer",
        "__init__",
        why="a program's optimizers are known before they step",
        source="torch/optim/optimizer.py Optimizer.__init__",
    ),
    *patches(
        "torch.autograd",
        "backward",
        "grad",
        why="steps of programs without an optimizer are told apart",
        source="torch/autograd/__init__.py backward, grad",
    ),
    *patches(
        "torch.func",
        "grad",
        "grad_and_value",
        why="steps of programs without an optimizer are told apart",
        source="torch/_functorch/apis.py grad, grad_and_value",
    ),
    *patches(
        "torch",
        "tensor",
        why="tensors can be made of fake scalars",
        source="torch/csrc/utils/tensor_new.cpp internal_new_from_data",
    ),
    *patches(
        "torch.UntypedStorage",
        "resize_",
        why="storages that are freed and regrown in place are followed",
        source="torch/csrc/StorageMethods.cpp THPStorage_resize_",
    ),
    *patches(
        "torch.random",
        "default_generator",
        why="states of the random generator are counted",
        source="torch/random.py get_rng_state",
    ),
    *patches(
        "torch.Tensor",
        "__deepcopy__",
        why="copies of a program's tensors with data have data",
        source="torch/_tensor.py Tensor.__deepcopy__",
    ),
    *patches(
        "torch.Tensor",
        "cuda",
        why="a CPU run refuses to move tensors to a GPU",
        source="torch/csrc/autograd/python_variable_methods.cpp THPVariable_cuda",
    ),
    *patches(
        "torch.nn.Module",
        "cuda",
        why="a CPU run refuses to move modules to a GPU",
        source="torch/nn/modules/module.py Module.cuda",
    ),
)
