"""A program that plays games: an episode is as long as data say, and the interval holds the longest."""

from collections.abc import Callable

import pytest

from memplan.measure.records import Estimate

pytest.importorskip("gymnasium")

REINFORCE = """
import gymnasium, torch, warnings
warnings.simplefilter("ignore")
from torch.distributions import Categorical
game = gymnasium.make("CartPole-v1", max_episode_steps=14)
policy = torch.nn.Linear(4, 2).to("cuda")
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
for episode in range(100):
    state, _ = game.reset(seed=1)
    kept = []
    for number in range(1000):
        chances = Categorical(logits=policy(torch.from_numpy(state).to("cuda")))
        action = chances.sample()
        kept.append(chances.log_prob(action))
        state, reward, terminated, truncated, _ = game.step(action.item())
        if {ended}:
            break
    loss = torch.stack(kept).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_the_interval_holds_the_shortest_and_the_longest_episode(estimated: Callable[..., Estimate]) -> None:
    as_it_is = estimated(REINFORCE.format(ended="terminated or truncated"))
    shortest, longest = (estimated(REINFORCE.format(ended=f"number == {last}")) for last in (0, 13))
    assert any(said.startswith("data end an episode: here after") for said in as_it_is.assumptions)
    assert shortest.peak.requested_bytes < as_it_is.peak.requested_bytes < longest.peak.requested_bytes
    assert as_it_is.peak.low_bytes <= shortest.peak.device_bytes
    assert (
        as_it_is.peak.high_bytes
        >= longest.peak.reserved_bytes + as_it_is.peak.device_bytes - as_it_is.peak.reserved_bytes
    )
