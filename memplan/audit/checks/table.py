"""Rule → the function that finds it."""

from collections.abc import Callable, Iterator, Mapping

from memplan.audit.checks import allocator, attention, autograd, data, evaluation, hooks, model, pools, retained
from memplan.audit.code import Code
from memplan.audit.records import Hit

CHECKS: Mapping[str, Callable[[Code], Iterator[Hit]]] = {
    "MA001": retained.running_total,
    "MA002": retained.container,
    "MA003": retained.attribute,
    "MA004": retained.meter,
    "MA005": retained.moving_average,
    "MA011": evaluation.gradients_on,
    "MA012": evaluation.left_in_eval,
    "MA013": evaluation.outputs_collected,
    "MA014": evaluation.unread_maps,
    "MA021": allocator.empty_cache,
    "MA022": allocator.collect,
    "MA023": allocator.retry_in_handler,
    "MA031": autograd.retained_graph,
    "MA032": autograd.cyclic_graph,
    "MA033": autograd.zeroed_in_place,
    "MA034": autograd.inputs_with_gradients,
    "MA035": autograd.anomaly_detection,
    "MA036": autograd.endless_recording,
    "MA041": model.deep_stack,
    "MA042": attention.written_out,
    "MA043": attention.eager_asked_for,
    "MA044": attention.cast_logits,
    "MA045": model.kept_in_forward,
    "MA046": model.cached,
    "MA047": model.data_parallel,
    "MA049": model.copied,
    "MA050": model.optimizer_in_loop,
    "MA051": hooks.registered_each_step,
    "MA052": hooks.stores_graph,
    "MA061": data.on_device_in_workers,
    "MA063": data.fetched_ahead,
    "MA064": data.loader_in_loop,
    "MA065": data.whole_data_set,
    "MA071": data.loaded_onto_gpu,
    "MA081": pools.not_given_back,
    "MA082": pools.never_used,
    "MA083": pools.unmatched_names,
}
NOT_IN_TESTS = frozenset({"MA011", "MA012", "MA013", "MA047", "MA071", "MA081"})
"""What does no harm in a unit test, which runs once and on little data."""
