# SPDX-License-Identifier: Apache-2.0
"""Theorem 1 of PLSGD 2023: the bound over a grid, its noise term against M, and where beta = sqrt(M) diverges.

All runs are lanes of few compiled programs: a step uses one row, and without noise a client's rows are all equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from idiolect import RequestError
from idiolect.data import Problem
from idiolect.data.synthetic import noisy_quadratics
from idiolect.theory import rates
from idiolect.theory.step_sizes import theorem_1_step, tuned_condition_range, tuned_step
from papers.plsgd import every_round, personalized, radius, squared_errors
from papers.plsgd_rates.figure import draw as draw
from papers.plsgd_rates.figure import middle
from papers.reproduction import Measured, Progress, Spec, count_parts

_DIGITS_LEFT = 1e-6  # an error this small beside its start still has ten digits


class Curves(NamedTuple):
    """What the figure shows; see the functions that make the parts."""

    bound: dict[str, Any]
    noise: dict[str, Any]
    threshold: dict[str, Any]


def measure(spec: Spec, progress: Progress) -> Measured:
    """All four parts, from the grid of equation 14 to the threshold of E000-4."""
    runs = len(spec["bound"]["local_steps"]) * len(spec["bound"]["condition_number"])
    done = count_parts(
        progress, runs + 2 * len(spec["noise"]["clients"]) + len(spec["stability"]["clients"]) + 2, "theorem 1"
    )
    grid, bound = _bound(spec, done)
    falls, noise = _noise(spec, done)
    tuned = _tuned(spec, done)
    stable = _stability(spec, done)
    agree, threshold = _threshold(spec, done)
    numbers = grid | falls | tuned | stable | agree
    return Measured({name: float(value) for name, value in numbers.items()}, Curves(bound, noise, threshold))


def _problem(spec: Spec, clients: int, spectrum: Sequence[float], noise: float, common: bool) -> Problem:
    return noisy_quadratics(
        clients,
        spec["dimension"],
        spec["rows"],
        spectrum,
        heterogeneity=spec["heterogeneity"],
        noise=noise,
        seed=spec["problem_seed"],
        common_hessian=common,
        dtype=np.float64,
    )


def _lanes(problem: Problem, settings: Sequence[dict[str, Any]], seeds: int, rounds: int) -> np.ndarray:
    """Models after every round, each setting with each seed: (settings, seeds, rounds + 1, clients, dimension)."""
    algorithms = [personalized(problem, batch_size=1, **one) for one in settings for _ in range(seeds)]
    models = every_round(algorithms, problem, rounds, list(range(seeds)) * len(settings))
    return models.reshape(len(settings), seeds, *models.shape[1:])


def _bound(spec: Spec, done: Callable[[], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Worst ratio of the measured error to equation 14, by condition number, with and without noise."""
    asked, numbers, shown = spec["bound"], {}, {}
    for kappa in asked["condition_number"]:
        worst = {0.0: 0.0, asked["noise"]: 0.0}
        for steps in asked["local_steps"]:
            for noise in worst:
                problem = _problem(spec, asked["clients"], (1 / kappa, 1.0), noise, common=False)
                errors, bounds = _errors_and_bounds(spec, problem, steps, noise)
                worst[noise] = max(worst[noise], float((errors / bounds).max()))
                if (kappa, steps) == (middle(asked["condition_number"]), middle(asked["local_steps"])):
                    shown["noisy" if noise else "exact"] = (errors[0], bounds[0])
            done()
        numbers[f"bound_ratio_condition_{kappa:g}"] = worst[0.0]
        numbers[f"bound_ratio_condition_{kappa:g}_noise"] = worst[asked["noise"]]
    return numbers, shown


def _errors_and_bounds(spec: Spec, problem: Problem, steps: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean error over seeds and equation 14, one row per alpha, one column per round from the first."""
    asked = spec["bound"]
    largest, least = float(problem.smoothness.max()), float(problem.strong_convexity.min())
    settings = [
        {
            "personal_step_scale": alpha,
            "server_step_size": asked["server_step_size"],
            "step_size": asked["step_share"] * theorem_1_step(largest, alpha),
            "local_steps": steps,
        }
        for alpha in asked["personal_step_scale"]
    ]
    models = _lanes(problem, settings, spec["seeds"], asked["rounds"])
    errors = squared_errors(models, problem).mean(axis=1)[:, 1:]
    known: dict[str, Any] = {
        "clients": problem.clients,
        "strong_convexity": least,
        "radius": radius(problem),
        "noise": noise,
    }
    rounds = range(1, asked["rounds"] + 1)
    bounds = [[rates.theorem_1_bound(rounds=r, **known, **one) for r in rounds] for one in settings]
    return errors, np.array(bounds)


def _noise(spec: Spec, done: Callable[[], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What noise adds to the error for M = 1 .. 64: by part at fixed alpha, and at alpha = 1/sqrt(M).

    Quadratics are linear in the noise, so a noisy run minus the exact one is the noise's own share of the error: its
    mean over clients is what the server's averaging acts on, deviations from that mean are each client's own.
    """
    asked, columns = spec["noise"], []
    if len(asked["clients"]) < 2:
        raise RequestError(f"noise.clients needs at least two numbers to fit a slope, got {asked['clients']}.")
    common = {key: asked[key] for key in ("step_size", "server_step_size", "local_steps")}
    for clients in asked["clients"]:
        settings = [{"personal_step_scale": a, **common} for a in (asked["personal_step_scale"], clients**-0.5)]
        noisy, exact = (
            _problem(spec, clients, [1.0] * spec["dimension"], level, common=True) for level in (asked["noise"], 0.0)
        )
        # as many lanes as the grid above has: where the other shapes agree too, so does the compiled program
        repeats = spec["seeds"] * len(spec["bound"]["personal_step_scale"]) // len(settings)
        gap = _lanes(noisy, settings, repeats, asked["rounds"]) - _lanes(exact, settings, repeats, asked["rounds"])
        gap = gap[:, :, -asked["window"] :]
        centre = gap.mean(axis=3)
        own = ((gap - centre[:, :, :, None]) ** 2).sum(axis=-1).mean(axis=(1, 2, 3))
        shared = (centre**2).sum(axis=-1).mean(axis=(1, 2))
        foretold = [[f(spec, clients, one) for one in settings] for f in (_predicted_noise, _noise_term)]
        columns.append(np.array([shared, own, shared + own, *foretold]))
        done()
    shared, own, total, predicted, terms = np.stack(columns, axis=1)  # each (numbers of clients, settings)
    many = np.log(asked["clients"])
    numbers = {f"noise_{m}_clients": total[i, 0] for i, m in enumerate(asked["clients"])}
    numbers |= {f"noise_{m}_clients_small_alpha": total[i, 1] for i, m in enumerate(asked["clients"])}
    numbers |= {
        "noise_over_bound_term": (total / terms).max(),
        "shared_noise_slope": np.polyfit(many, np.log(shared[:, 0]), 1)[0],
        "own_noise_last_over_second": own[-1, 0] / own[1, 0],
        "small_alpha_noise_slope": np.polyfit(many, np.log(total[:, 1]), 1)[0],
    }
    names = {"shared": shared[:, 0], "own": own[:, 0], "total": total, "terms": terms, "predicted": predicted}
    return numbers, names | {"clients": np.array(asked["clients"])}


def _predicted_noise(spec: Spec, clients: int, setting: dict[str, Any]) -> float:
    """The exact expectation of the noise's share, averaged over the same window of rounds."""
    asked = spec["noise"]
    window = range(asked["rounds"] - asked["window"] + 1, asked["rounds"] + 1)
    still = {"start_deviation": 0.0, "start_mean": 0.0, "noise": asked["noise"], "clients": clients}
    return float(np.mean([rates.common_hessian_error(rounds=r, **still, **setting) for r in window]))


def _noise_term(spec: Spec, clients: int, setting: dict[str, Any]) -> float:
    """(4 eta sigma^2/mu)(alpha + beta^2/(M alpha)): equation 14 without its first term."""
    return rates.theorem_1_bound(
        rounds=1, clients=clients, strong_convexity=1.0, radius=0.0, noise=spec["noise"]["noise"], **setting
    )


def _tuned_setting(spec: Spec, clients: int, steps: int, rounds: int) -> tuple[float, dict[str, Any]]:
    """Equation 16's condition number and settings for beta = 1."""
    asked = spec["tuned"]
    low, high = tuned_condition_range(clients, steps, rounds)
    kappa = asked["condition_share"] * high
    if not low <= kappa < high:
        raise RequestError(
            f"tuned.condition_share must put the condition number in [{low:g}, {high:g}), the range of equation 16, "
            f"got {kappa:g}. Use 0.75."
        )
    setting = {key: asked[key] for key in ("personal_step_scale", "server_step_size")}
    step_size = tuned_step(asked["strong_convexity"], clients, steps, rounds)
    return kappa, setting | {"step_size": step_size, "local_steps": steps}


def _tuned_bound(spec: Spec, problem: Problem, kappa: float, steps: int, rounds: int, noise: float) -> float:
    return rates.theorem_1_tuned_bound(
        condition_number=kappa,
        strong_convexity=spec["tuned"]["strong_convexity"],
        local_steps=steps,
        rounds=rounds,
        clients=problem.clients,
        radius=radius(problem),
        noise=noise,
    )


def _tuned(spec: Spec, done: Callable[[], None]) -> dict[str, Any]:
    """Equation 16: it holds, its noise falls with M because its step does, and hardly any of the start is gone."""
    asked, steps = spec["tuned"], spec["noise"]["local_steps"]
    ratios, noises = [], []
    for clients in spec["noise"]["clients"]:
        kappa, setting = _tuned_setting(spec, clients, steps, asked["rounds"])
        spectrum = (asked["strong_convexity"], kappa * asked["strong_convexity"])
        noisy, exact = (_problem(spec, clients, spectrum, level, common=False) for level in (asked["noise"], 0.0))
        repeats = spec["seeds"] * len(spec["bound"]["personal_step_scale"])
        ends = [_lanes(problem, [setting], repeats, asked["rounds"])[0] for problem in (noisy, exact)]
        error = squared_errors(ends[0][:, -1], noisy).mean()
        ratios.append(error / _tuned_bound(spec, noisy, kappa, steps, asked["rounds"], asked["noise"]))
        noises.append(((ends[0] - ends[1])[:, -1] ** 2).sum(axis=-1).mean())
        done()
    slope = np.polyfit(np.log(spec["noise"]["clients"]), np.log(noises), 1)[0]
    return {
        "tuned_bound_ratio": max(ratios),
        "tuned_noise_slope": slope,
        "tuned_start_left_on_flattest_axis": _left_of_start(spec, clients, spectrum, setting),
    }


def _left_of_start(spec: Spec, clients: int, spectrum: Sequence[float], setting: dict[str, Any]) -> float:
    """The squared error after all rounds over that at the start, along the axis that is flattest for all clients."""
    problem = _problem(spec, clients, spectrum, 0.0, common=True)
    repeats = spec["seeds"] * len(spec["bound"]["personal_step_scale"])  # the program is there; its lanes agree
    errors = _lanes(problem, [setting], repeats, spec["tuned"]["rounds"])[0, 0] - problem.optimum
    flattest = int(np.argmin(np.diagonal(problem.hessians[0])))  # type: ignore[index]
    squares = (errors[..., flattest] ** 2).mean(axis=1)
    return float(squares[-1] / squares[0])


def _stability(spec: Spec, done: Callable[[], None]) -> dict[str, Any]:
    """The mean mode's multiplier on the stiffest axis, and the error against the bound, beta = sqrt(M) and 1."""
    asked, numbers = spec["stability"], dict[str, Any]()
    for clients in asked["clients"]:
        problem = _problem(spec, clients, asked["spectrum"], 0.0, common=True)
        for beta in (math.sqrt(clients), 1.0):
            setting = {key: asked[key] for key in ("personal_step_scale", "step_size", "local_steps")}
            setting["server_step_size"] = beta
            models = _lanes(problem, [setting], 1, asked["rounds"])[0, 0]
            bound = rates.theorem_1_bound(
                rounds=asked["rounds"],
                clients=clients,
                strong_convexity=float(problem.strong_convexity.min()),
                radius=radius(problem),
                **setting,
            )
            ratio = squared_errors(models[-1], problem) / bound
            name = f"stability_{clients}_clients_" + ("one" if beta == 1.0 else "sqrt")
            numbers[f"{name}_error_over_bound"] = ratio
            if beta != 1.0:
                numbers[f"{name}_multiplier"] = _growth(models, problem)
        done()
    return numbers | _tuned_divergence(spec, done)


def _growth(models: np.ndarray, problem: Problem) -> float:
    """What a round multiplied mean_m (v_m - v*_m) by on the stiffest axis, with its sign: the last with digits left."""
    stiffest = int(np.argmax(np.diagonal(problem.hessians[0])))  # type: ignore[index]
    mean = (models - problem.optimum).mean(axis=1)[:, stiffest]
    last = np.flatnonzero(np.abs(mean[:-1]) > _DIGITS_LEFT * abs(mean[0]))[-1]
    return float(mean[last + 1] / mean[last])


def _tuned_divergence(spec: Spec, done: Callable[[], None]) -> dict[str, Any]:
    """Equation 16's own step and condition number with beta = sqrt(M), for the largest M."""
    asked = spec["stability"]
    clients, rounds = max(asked["clients"]), asked["rounds"]
    kappa, setting = _tuned_setting(spec, clients, asked["local_steps"], rounds)
    mu = spec["tuned"]["strong_convexity"]
    problem = _problem(spec, clients, (mu, kappa * mu), 0.0, common=True)
    bound = _tuned_bound(spec, problem, kappa, asked["local_steps"], rounds, 0.0)
    errors = {}
    for name, beta in (("sqrt", math.sqrt(clients)), ("one", 1.0)):
        models = _lanes(problem, [setting | {"server_step_size": beta}], 1, rounds)[0, 0]
        errors[f"tuned_{name}_error_over_bound"] = squared_errors(models[-1], problem) / bound
    done()
    return errors


def _threshold(spec: Spec, done: Callable[[], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The multiplier over a line of beta: it passes -1 where the formula says, and nowhere else."""
    asked, other = spec["threshold"], spec["stability"]
    lanes = spec["seeds"] * len(spec["bound"]["personal_step_scale"])
    least, largest = asked["server_step_size"]
    betas = np.linspace(least, largest, lanes)
    problem = _problem(spec, asked["clients"], other["spectrum"], 0.0, common=True)
    settings = [
        {
            "personal_step_scale": other["personal_step_scale"],
            "server_step_size": float(beta),
            "step_size": asked["step_size"],
            "local_steps": other["local_steps"],
        }
        for beta in betas
    ]
    models = _lanes(problem, settings, 1, asked["rounds"])[:, 0]
    growth = np.array([_growth(one, problem) for one in models])
    predicted = np.array([rates.mean_multiplier(curvature=max(other["spectrum"]), **one) for one in settings])
    done()
    numbers = {
        "threshold_multiplier_deviation": np.abs(growth - predicted).max(),
        "threshold_largest_stable": betas[np.abs(growth) < 1].max(initial=-np.inf),
        "threshold_smallest_unstable": betas[np.abs(growth) > 1].min(initial=np.inf),
    }
    return numbers, {"beta": betas, "multiplier": growth, "predicted": predicted}
