"""Several ranks, traced one at a time: PyTorch's own sharding code under a process group that sends nothing.

``trace_job`` opens ``world.world`` around everything that it runs: the fake process group is there, the mesh is made,
what DTensor computes for its own sake is not recorded. Once the model is built, cast and checkpointed,
``apply.parallelize(model, spec, mesh)`` lets the ranks share it, by degree: tensor first, then context, expert, data.

Each kind of parallelism is one module with one function ``(model, spec, mesh) -> model`` (``apply.Sharing``), entered
in a table of ``apply``. What shares layers runs with parameters on the meta device and outside of all modes
(``materialise.on_meta``); parameters get memory of their local size afterwards. What wraps a model (DDP, FSDP1) runs
inside the fake world, with parameters on the device. ``mesh`` is a ``DeviceMesh`` of type ``cuda`` with the dimensions
among ``pp``, ``dp_replicate``, ``dp_shard``, ``cp``, ``tp`` (``process_group.MESH_DIMENSIONS``) that have more than one
rank; slicing and flattening it, and ``init_device_mesh``, work everywhere. ``world.current()`` knows the rank and the
recorder, and takes what is assumed; ``ranks.ranks_to_trace`` says which ranks of a job differ.
"""
