"""The steps of a program that is traced: recorded until one leaves what it found."""

from collections.abc import Callable

import torch

from memplan.runtime.checkpoint.blocks import bare
from memplan.tracing.parameter_kinds import elements
from memplan.tracing.place import in_placement_order
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import ModelFacts
from memplan.tracing.script.boundaries import Boundaries
from memplan.tracing.script.epoch import Epoch
from memplan.tracing.script.repeated_calls import RepeatedCalls
from memplan.tracing.steps import MOST_STEPS, Steps


class Periods(Boundaries):
    """Notes a program's steps and ends it when one repeats."""

    def __init__(self, recorder: Recorder, progress: Callable[[str], None], epoch: Epoch) -> None:
        super().__init__()
        self.steps = Steps(recorder)
        """The steps so far."""
        self.roots: list[torch.nn.Module] = []
        """Modules that the program called itself, in order."""
        self.calls = RepeatedCalls(recorder)
        """What the program evaluates again and again."""
        self.epoch = epoch
        """What feeds the steps; where it ends, what follows it is one more step."""
        self._parts: set[int] = set()
        """These and all modules inside them, by ``id``."""
        self._passes: list[int] = []
        """Backward passes of each step, the one that has begun included."""
        self._recorder = recorder
        recorder.before_compiled = self.calls_module
        self._progress = progress

    def facts(self) -> ModelFacts:
        """Return how many parameters the called modules have, and how many of them learn."""
        parameters = {id(each): each for root in self.roots for each in root.parameters()}.values()
        learning = [each for each in parameters if each.requires_grad]
        return ModelFacts(parameters=sum(map(elements, parameters)), trainable_parameters=sum(map(elements, learning)))

    def called(self, module: torch.nn.Module) -> None:
        """Note a module that the program calls itself."""
        attribution = self._recorder.attribution
        # What is checkpointed runs again in backward, where nobody stands around it.
        if attribution.is_inside_module or attribution.runs_backward or id(module) in self._parts:
            return
        self.roots.append(module)
        self._parts.update(map(id, module.modules()))
        if self.has_begun:
            self._name(module)

    def made(self) -> None:
        """The model is there: what goes to the device from here on are batches, or models, which will be named."""
        self._recorder.role_of_copies = "input"

    def begin_step(self) -> None:
        """Record from here on."""
        if not self.steps.ranges:
            for root in self.roots:
                self._name(root)
        self._progress(f"tracing step {len(self.steps.ranges) + 1}")
        self._passes.append(0)
        self.calls.begin_step()
        self.steps.begin()

    def ends_with_backward(self) -> bool:
        """Count the backward passes of a step; what follows an epoch ends with the first."""
        if self._passes:
            self._passes[-1] += 1
        return super().ends_with_backward() or self.epoch.has_ended

    def end_step(self) -> bool:
        """A step ends; does another have to be traced? One after it where it accumulates less than an earlier one."""
        self.steps.end()
        if self.epoch.has_ended:
            return False
        traced = len(self.steps.ranges)
        last, most = self._passes[-1], max(self._passes)
        if last < most and traced == MOST_STEPS:
            self._recorder.values.assume(
                f"step {self._passes.index(most) + 1} has {most} backward passes, the last one traced {last}: "
                "what one with as many takes beside the states of its optimizers is not in the figure"
            )
        return self.steps.goes_on or (last < most and traced < MOST_STEPS) or self.epoch.end()

    def give_up(self) -> None:
        """The program ends by itself: with what follows its epoch, or amid a step, which is left out."""
        end = self.steps.end if self.epoch.has_ended else self.steps.give_up
        end()

    def _name(self, root: torch.nn.Module) -> None:
        """Learn the names of a model's modules, inside of DDP, and which storages are its parameters and buffers."""
        self._recorder.attribution.name_modules(bare(root), under=self._own_name(root))
        root = bare(root)
        for prefix, module in in_placement_order("", root):
            for role, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
                for name, tensor in tensors.items():
                    if tensor is not None and not self._recorder.references.is_host(tensor):
                        self._recorder.references.adopt(tensor, role=role, name=prefix + name, moves=False)  # type: ignore[arg-type]

    def _own_name(self, root: torch.nn.Module) -> str:
        """What stands before the paths of a model in which an earlier one (of a GAN, an actor) has modules, too."""
        paths = {name for name, _ in bare(root).named_modules() if name}
        earlier = self.roots[: next(index for index, other in enumerate(self.roots) if other is root)]
        clashing = sum(1 for other in earlier if any(name in paths for name, _ in bare(other).named_modules()))
        return f"{type(bare(root)).__name__}{clashing + 1}" if clashing else ""
