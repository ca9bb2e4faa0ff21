"""Op-level schedules put into force: AOTAutograd's joint graph cut into a forward and a backward that follow one."""

from memplan.runtime.partition.order_file import load

__all__ = ["load"]
