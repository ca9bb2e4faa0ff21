"""Allocator policies side by side on the same steps; ``compose.simulate`` is the library call.

    a job       lengths ──► from_job ──┐  sizes: exact polynomials of the length
                                       ├──► family ──► workload
    a snapshot  from_snapshot ─────────┘  family: the stream of a step of any length

    workload ──► run, once per policy ──► recommend ──► Simulation
                 │                        leftovers: what if a step left nothing for the next
                 ├ policies: what is compared, and the allocator that each becomes
                 │   buckets, step_plan: what the others work out beforehand
                 ├ play: the steps, one after the other, on that allocator, whose calls to the device are counted
                 └ costs: what the calls are worth in time

``records`` holds what travels between these.
"""
