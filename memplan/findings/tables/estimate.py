"""What a verdict or the gate can say."""

from memplan.findings.records import Rule

TABLE = (
    Rule(
        code="MP001",
        title="predicted out of memory",
        meaning="The predicted device peak (allocator segments, CUDA context and libraries) exceeds what a fresh "
        "process can allocate on this GPU.",
        remedy="Take one of the changes listed below the verdict, a smaller batch or sequence, a lower precision, "
        "--checkpoint full, or a larger GPU. 'memplan gpus' lists them.",
    ),
    Rule(
        code="MP002",
        title="fits tightly",
        meaning="The predicted peak fits, but the upper end of its interval does not: a run may fail.",
        remedy="Leave more room before a long run, or try the first step on the real GPU.",
    ),
    Rule(
        code="MP003",
        title="no trustworthy estimate",
        meaning="Something that decides the peak could not be traced or modelled, so no figure is given.",
        remedy="The report names what stands in the way; --explain lists every assumption.",
    ),
    Rule(
        code="MP004",
        title="over max-peak",
        meaning="The predicted device peak is larger than the max-peak of the job in the project file. The point "
        "estimate is compared, not the upper end of its interval.",
        remedy="Take the memory back (the report names the modules that grew, and changes that fit), or raise "
        "max-peak at the line that the report names.",
    ),
    Rule(
        code="MP005",
        title="below min-headroom",
        meaning="Usable memory of this GPU less the predicted device peak is smaller than the job's min-headroom.",
        remedy="Take the memory back, lower min-headroom, or take a larger GPU.",
    ),
    Rule(
        code="MP006",
        title="grew beyond max-increase",
        meaning="The predicted device peak is larger than the baseline's by more than the job's max-increase. "
        "memplan gate --update-baseline only notes it: the new figure is what is then accepted.",
        remedy="Look at the modules that grew. Where the growth is meant, run memplan gate --update-baseline and "
        "commit the baseline.",
    ),
    Rule(
        code="MP007",
        title="not in the baseline",
        meaning="A note: the baseline has no figures of this job on this GPU, so growth is not judged.",
        remedy="Run memplan gate --update-baseline and commit the baseline.",
    ),
    Rule(
        code="MP008",
        title="max-peak could be lower",
        meaning="A note: max-peak is more than a quarter above the upper end of the interval, so that the job "
        "could grow a great deal before anybody hears of it.",
        remedy="Lower max-peak to what the report says.",
    ),
    Rule(
        code="MP009",
        title="no budget",
        meaning="A note: the job has no max-peak, min-headroom or max-increase, so only running out of memory fails.",
        remedy="Paste the line that the report prints into the job's table.",
    ),
    Rule(
        code="MP010",
        title="fragmented beyond max-fragmentation",
        meaning="Of what the allocator has reserved at the predicted peak, a larger share than the job's "
        "max-fragmentation is bytes that nobody asked for: between live blocks, and rounding within them.",
        remedy="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (alloc-conf of the job), or see which setting "
        "memplan simulate recommends; or raise max-fragmentation.",
    ),
)
