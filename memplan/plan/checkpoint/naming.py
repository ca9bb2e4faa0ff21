"""Names of positions, for people."""

from memplan.plan.checkpoint.positions import Cut


def position_name(cut: Cut, index: int) -> str:
    """``forward of layers.3``; between blocks ``forward after layers.3``, ``optimizer``."""
    stretch = cut.stretches[index]
    if stretch.block is not None:
        return f"{stretch.phase} of {cut.modules[stretch.block]}"
    if stretch.phase == "optimizer":
        return "optimizer"
    before = next((each for each in reversed(cut.stretches[:index]) if each.block is not None), None)
    if before is None or before.block is None:
        return f"{stretch.phase} before the first block"
    if before.phase != stretch.phase:
        return f"{stretch.phase} after the last block's {before.phase}"
    return f"{stretch.phase} after {cut.modules[before.block]}"
