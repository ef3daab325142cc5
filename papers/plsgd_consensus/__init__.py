# SPDX-License-Identifier: Apache-2.0
"""Figure 2 of PLSGD 2023: the consensus error at every time step, with and without personalization.

Everything is measured by running the algorithms step by step; `theory.rates` has the exact values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from idiolect import RequestError
from idiolect.data import Problem
from idiolect.data.synthetic import two_clients
from idiolect.theory import rates
from papers.drawing import BLUE, INK, MUTED, VERMILION, blank
from papers.plsgd import consensus_errors, every_step, local_sgd, personalized
from papers.reproduction import Measured, Progress, Spec, count_parts


class Curves(NamedTuple):
    """xi_t by running and by formula, t = 0 .. KR - 1."""

    local: np.ndarray
    local_exact: np.ndarray
    personalized: np.ndarray
    personalized_exact: np.ndarray


def measure(spec: Spec, progress: Progress) -> Measured:
    """Both curves of the figure, the averages of equation 20, and equation 21 printed, corrected and exact."""
    problem = two_clients(spec["spread"], spec["center"], dtype=np.float64)
    steps, rounds = spec["local_steps"], spec["rounds"]
    done = count_parts(progress, 3 + len(spec["equation_20"]["step_size"]), "consensus error")
    local = consensus_errors(every_step(local_sgd(problem, local_steps=steps, **spec["local_sgd"]), problem, rounds))
    done()
    algorithm = personalized(problem, local_steps=steps, **spec["personalized"])
    personal = consensus_errors(every_step(algorithm, problem, rounds))
    done()
    curves = Curves(
        local.ravel(),
        _exact(spec, 0.0, spec["local_sgd"]["step_size"]),
        personal.ravel(),
        _exact(spec, spec["personalized"]["personal_step_scale"], spec["personalized"]["step_size"]),
    )
    numbers = {f"local_sgd_step_{k}": local[0, k] for k in range(1, steps)}
    numbers |= {f"personalized_step_{k}": personal[0, k] for k in range(1, steps)}
    # every round against the one before it, at every step but the first, where the error is zero
    ratios = personal[1:, 1:] / personal[:-1, 1:]
    numbers |= {
        "local_sgd_largest_deviation": np.abs(curves.local - curves.local_exact).max(),
        "local_sgd_largest_change_between_rounds": np.abs(local - local[0]).max(),
        "personalized_largest_deviation": np.abs(curves.personalized - curves.personalized_exact).max(),
        "personalized_smallest_round_ratio": ratios.min(initial=np.inf),
        "personalized_largest_round_ratio": ratios.max(initial=-np.inf),
        "personalized_last_over_first_round": personal[-1].max() / personal[0].max(),
    }
    numbers |= _equation_20(spec, problem, done)
    numbers |= _equation_21(spec, problem, personal)
    done()
    return Measured({name: float(value) for name, value in numbers.items()}, curves)


def _exact(spec: Spec, personal_step_scale: float, step_size: float) -> np.ndarray:
    setting = {"step_size": step_size, "local_steps": spec["local_steps"], "spread": spec["spread"]}
    times = range(spec["local_steps"] * spec["rounds"])
    return np.array([rates.consensus_at(t, personal_step_scale=personal_step_scale, **setting) for t in times])


def _equation_20(spec: Spec, problem: Problem, done: Any) -> dict[str, float]:
    """Time averages of local SGD's error, and how far they are from the formula."""
    asked, numbers, deviations = spec["equation_20"], {}, []
    if len(asked["local_steps"]) != len(asked["step_size"]):
        raise RequestError(
            "equation_20 needs one step_size per entry of local_steps, "
            f"got {asked['step_size']} for {asked['local_steps']}."
        )
    for steps, step_size in zip(asked["local_steps"], asked["step_size"]):
        algorithm = local_sgd(problem, local_steps=steps, step_size=step_size)
        average = consensus_errors(every_step(algorithm, problem, asked["rounds"])).mean()
        exact = rates.local_sgd_consensus(step_size=step_size, local_steps=steps, spread=spec["spread"])
        numbers[f"equation_20_{steps}_steps"] = average / spec["spread"] ** 2
        deviations.append(abs(average - exact))
        done()
    return numbers | {"equation_20_largest_deviation": max(deviations)}


def _equation_21(spec: Spec, problem: Problem, of_figure: np.ndarray) -> dict[str, float]:
    """The time average with personalization: exact form, corrected bound, and the printed one, which is exceeded."""
    asked = spec["equation_21"]
    algorithm = personalized(problem, **{key: value for key, value in asked.items() if key != "rounds"})
    average = consensus_errors(every_step(algorithm, problem, asked["rounds"])).mean()
    setting = {key: value for key, value in asked.items() if key != "server_step_size"} | {"spread": spec["spread"]}
    figure = {key: spec["personalized"][key] for key in ("personal_step_scale", "step_size")}
    figure |= {key: spec[key] for key in ("local_steps", "rounds", "spread")}
    printed = rates.printed_wrong_personalized_consensus_bound(**setting)
    corrected = rates.personalized_consensus_bound(**setting)
    return {
        "equation_21_measured": average,
        "equation_21_corrected_bound": corrected,
        "equation_21_printed_bound": printed,
        "equation_21_measured_over_corrected": average / corrected,
        "equation_21_measured_over_printed": average / printed,
        "equation_21_deviation_from_exact": abs(average - rates.personalized_consensus(**setting)),
        "figure_2_average_over_printed": of_figure.mean() / rates.printed_wrong_personalized_consensus_bound(**figure),
        "figure_2_average_deviation_from_exact": abs(of_figure.mean() - rates.personalized_consensus(**figure)),
    }


def draw(spec: Spec, curves: Curves) -> Figure:
    """Consensus error against time, linear as in the paper and logarithmic; exact curves behind the dots."""
    figure = blank(9.0, 3.5)
    left, right = figure.subplots(1, 2)
    for axes, first in ((left, 0), (right, 1)):  # after communication the error is zero, which has no logarithm
        _draw_curve(axes, spec, curves.local, curves.local_exact, BLUE, "o", first)
        _draw_curve(axes, spec, curves.personalized, curves.personalized_exact, VERMILION, "s", first)
        axes.set_xlabel("time step $t$ (ticks: communication)")
        axes.set_xticks(range(0, spec["local_steps"] * spec["rounds"] + 1, spec["local_steps"]))
        axes.set_xlim(-0.8, spec["local_steps"] * spec["rounds"] - 0.2)
        axes.grid(False, axis="y")
    left.set_ylabel(r"consensus error $\xi_t$")
    left.set_ylim(-0.03, 1.08 * curves.local.max())
    left.set_title("As in the paper's figure 2")
    right.set_yscale("log")
    right.set_title("The same on a logarithmic scale")
    local, personal = (spec[name]["step_size"] for name in ("local_sgd", "personalized"))
    scale = spec["personalized"]["personal_step_scale"]
    handles = [
        left.plot([], [], "o-", color=BLUE, markersize=4, label=rf"local SGD, $\eta={local:g}$")[0],
        left.plot(
            [],
            [],
            "s-",
            color=VERMILION,
            markersize=4,
            label=rf"personalized local SGD, $\eta={personal:g}$, $\alpha={scale:g}$",
        )[0],
        left.plot([], [], "o", color=MUTED, markersize=4, label="measured")[0],
        left.plot([], [], "-", color=MUTED, linewidth=4, alpha=0.35, label="exact")[0],
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, labelcolor=INK)
    return figure


def _draw_curve(
    axes: Axes, spec: Spec, measured: np.ndarray, exact: np.ndarray, colour: str, marker: str, first: int
) -> None:
    """One line per round, broken at communication, where the error falls to zero at once."""
    steps = spec["local_steps"]
    for start in range(0, len(measured), steps):
        times = np.arange(start + first, start + steps)
        axes.plot(times, exact[times], color=colour, linewidth=5, alpha=0.28, solid_capstyle="round")
        axes.plot(times, measured[times], marker, color=colour, linestyle="-", linewidth=1.0, markersize=3.6)
