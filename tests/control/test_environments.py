"""Tasks are functions of their numbers, trajectories those of single environments, and physics MuJoCo's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fallow.base.errors import RequestError
from fallow.data.environments import Navigation
from fallow.data.environments.load import load_environment
from tests.control.small import navigation


class Steady:
    """Acts by a linear rule of its own in every task."""

    def __init__(self, weights: Tensor, log_std: Tensor) -> None:
        self.weights, self.log_std = weights, log_std

    def mean(self, observations: Tensor) -> Tensor:
        return observations @ self.weights


def test_all_trajectories_at_once_are_those_of_single_points() -> None:
    place = navigation(setting="far goals and starts")
    drawn = place.meet("test", 2, 3)
    weights, log_std = torch.randn(3, 2, 2), torch.randn(3, 1, 1, 2) - 3
    seen = place.rollout(Steady(weights, log_std), drawn, 1)
    _, noise = place.chances(drawn, 1)
    for task in range(3):
        goal, start = drawn.tasks[task].split(2)
        for one in range(place.shots):
            s = start
            for t in range(place.horizon):
                torch.testing.assert_close(seen.observations[task, one, t], s)
                a = s @ weights[task] + noise[task, one, t] * log_std[task, 0, 0].exp()
                s = s + a.clamp(-0.1, 0.1)
                torch.testing.assert_close(seen.actions[task, one, t], a)
                torch.testing.assert_close(seen.rewards[task, one, t], -(s - goal).square().sum().sqrt())
    torch.testing.assert_close(seen.outputs[..., :2], seen.observations @ weights[:, None])
    torch.testing.assert_close(seen.returns, seen.rewards.sum(2).mean(1))


def test_tasks_and_their_chances_are_functions_of_their_numbers() -> None:
    place = navigation()
    all_of_them, last = place.meet("train", 60, 10, seed=3), place.meet("train", 68, 2, seed=3)
    assert torch.equal(all_of_them.tasks[8:], last.tasks)
    assert torch.equal(place.chances(all_of_them, 1)[1][8:], place.chances(last, 1)[1])
    assert not torch.equal(place.chances(last, 0)[1], place.chances(last, 1)[1])
    assert not torch.equal(place.meet("train", 68, 2, seed=4).tasks, last.tasks)
    # the test tasks of another place have other goals; training never leaves its own
    far = navigation(setting="far goals")
    assert float(far.meet("test", 0, 64).tasks[:, :2].abs().max()) > 1
    assert float(far.meet("train", 0, 64).tasks[:, :2].abs().max()) < 0.5
    assert torch.equal(far.meet("test", 0, 64).tasks[:, 2:].abs(), torch.zeros(64, 2))
    assert list(place.places()) == ["as in training", "other starts", "far goals", "far goals and starts"]


def test_bad_environments_say_what_would_be_right() -> None:
    with pytest.raises(RequestError, match="did you mean 'far goals'"):
        Navigation(setting="far goal")
    with pytest.raises(RequestError, match="horizon is 0"):
        load_environment("navigation:horizon=0")
    with pytest.raises(RequestError, match="shows nothing"):
        Navigation(shots=1, horizon=1)
    with pytest.raises(RequestError, match="shows nothing"):
        load_environment("halfcheetah-direction:horizon=1", shots=1)


def test_without_the_extra_there_is_a_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gymnasium", "mujoco"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RequestError, match=r"pip install 'fallow\[rl\]'"):
        load_environment("halfcheetah-direction")


def test_half_cheetahs_run_by_mujocos_own_physics() -> None:
    mujoco = pytest.importorskip("mujoco")
    gymnasium = pytest.importorskip("gymnasium")
    place = load_environment("halfcheetah-direction:horizon=6", shots=2)
    drawn = place.meet("test", 0, 4)
    assert sorted(drawn.tasks.flatten().tolist()) == [-1, -1, 1, 1]  # both directions alike
    seen = place.rollout(Steady(torch.zeros(4, 17, 6), torch.zeros(6)), drawn, 0)
    assert seen.observations.shape == (4, 2, 6, 17)
    again = place.rollout(Steady(torch.zeros(4, 17, 6), torch.zeros(6)), drawn, 0)
    assert torch.equal(again.rewards, seen.rewards)  # nothing is left of what ran before
    body = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    mass = 'settotalmass="14"'
    assert mass in body.read_text("utf-8")
    model = mujoco.MjModel.from_xml_string(body.read_text("utf-8").replace(mass, ""))
    mujoco.mj_setTotalmass(model, 14)
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    starts, noise = place.chances(drawn, 0)
    data.qpos[:], data.qvel[:] = data.qpos + starts[1, 1, :9].numpy(), starts[1, 1, 9:].numpy()
    for t in range(6):
        expected = torch.tensor([*data.qpos[1:], *data.qvel], dtype=torch.float32)
        torch.testing.assert_close(seen.observations[1, 1, t], expected, atol=1e-4, rtol=1e-4)
        data.ctrl[:] = noise[1, 1, t].clamp(-1, 1).numpy()
        before = data.qpos[0]
        mujoco.mj_step(model, data, nstep=5)
        gain = float(drawn.tasks[1]) * (data.qpos[0] - before) / 0.05 - 0.05 * float((data.ctrl**2).sum())
        assert float(seen.rewards[1, 1, t]) == pytest.approx(gain, abs=1e-3)
    speeds = load_environment("halfcheetah-velocity", shots=2).meet("test", 0, 8).tasks
    assert float(speeds.min()) > 0
    assert float(speeds.max()) < 2
