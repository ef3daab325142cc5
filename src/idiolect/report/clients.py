# SPDX-License-Identifier: Apache-2.0
"""What a method did for each client: its answer alone, shared and personal, and the verdict, over seeds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from idiolect.report.folder import Run, laid_out, mean_known, numbers, of_method

VERDICTS = ("helped", "hurt", "unclear", "same")
NO_INTERVALS = "Intervals and verdicts of single clients need their rows, which are not here."
SAME = "equal scores on the client's test rows, which may be too few to show a difference"


@dataclasses.dataclass(frozen=True)
class ClientTable:
    """One method's clients, as parallel arrays; scores are means over seeds, not-a-number where there is none.

    Intervals, expected gains and verdicts are read, never made, here: experiments judge a client once, by its mean over
    seeds. A run folder without expected gains (an older one) shows the gains themselves in their place.
    """

    method: str
    seeds: np.ndarray  # (seeds,)
    client: np.ndarray  # (clients,) names
    train_rows: np.ndarray  # that its models were trained on: with validation rows where these served, too
    test_rows: np.ndarray
    alone: np.ndarray
    shared: np.ndarray
    personal: np.ndarray
    gain: np.ndarray
    gain_low: np.ndarray
    gain_high: np.ndarray
    expected: np.ndarray  # the gain moved toward the mean gain of all clients, as far as its uncertainty asks
    expected_low: np.ndarray
    expected_high: np.ndarray
    one: np.ndarray  # score of one model for all
    verdict: np.ndarray  # of `VERDICTS`, or '' where there is nothing to compare with
    held_out: np.ndarray  # never trained
    seed_personal: np.ndarray  # (seeds, clients)
    seed_gain: np.ndarray

    def __len__(self) -> int:
        return len(self.client)

    @property
    def compared(self) -> int:
        """Clients whose gain against training alone is known."""
        return int((~np.isnan(self.gain)).sum())

    def order(self) -> np.ndarray:
        """Positions from the largest loss to the largest gain; clients without a gain come last."""
        return np.argsort(self.gain, kind="stable")

    def counted(self, verdict: str) -> int:
        """Clients with this verdict."""
        return int((self.verdict == verdict).sum())


def has_intervals(run: Run) -> bool:
    """Whether single clients have intervals; where their rows stayed at the sites, gains are known by scores alone."""
    columns = "gain_low", "gain_expected_low"
    return any(bool(np.isfinite(numbers(run.clients, name)).any()) for name in columns)


def client_table(run: Run, method: str) -> ClientTable:
    """Gather one method's rows of clients.parquet into one row per client."""
    rows = of_method(run.clients, method)
    names = rows["client"].cast(pa.string()).to_pylist()
    place = {name: number for number, name in enumerate(dict.fromkeys(names))}  # in the order of the file
    # a method may have lost clients in some seed: cells that no row fills stay not-a-number
    seeds, seed_of = np.unique(rows["seed"].to_numpy(), return_inverse=True)
    at = seed_of, np.asarray([place[name] for name in names], int)

    def spread(column: str) -> np.ndarray:
        return laid_out(numbers(rows, column), at, len(seeds), len(place))

    refit = run.summary.refit and any(entry.tuned for entry in run.methods if entry.method == method)
    means = {name: mean_known(spread(column)) for name, column in _MEANS.items()}
    older = np.isnan(means["expected"])  # a folder from before gains were moved toward their mean
    for end in ("", "_low", "_high"):
        means[f"expected{end}"] = np.where(older, means[f"gain{end}"], means[f"expected{end}"])
    verdicts = np.full((len(seeds), len(place)), "", dtype=object)
    if "verdict" in rows.column_names:
        verdicts[at] = [verdict or "" for verdict in rows["verdict"].to_pylist()]
    # the same for all seeds; an older folder judged each seed by itself
    verdict = np.where((verdicts == verdicts[:1]).all(axis=0), verdicts[0] if len(seeds) else "", "unclear")
    return ClientTable(
        method=method,
        seeds=seeds,
        client=np.asarray(list(place), dtype=object),
        # after a refit models were trained on validation rows, too
        train_rows=mean_known(spread("train_rows") + (spread("validation_rows") if refit else 0)),
        shared=mean_known(spread(f"test_shared_{run.score}_selected")),
        verdict=np.where(np.isnan(means["gain"]), "", verdict),
        held_out=np.nan_to_num(mean_known(spread("held_out"))) > 0,
        seed_personal=spread("score"),
        seed_gain=spread("gain"),
        **means,
    )


_MEANS = {  # columns of clients.parquet that become means over seeds
    "test_rows": "test_rows",
    "alone": "local_score",
    "personal": "score",
    "one": "one_score",
    **{f"gain{end}": f"gain{end}" for end in ("", "_low", "_high")},
    **{f"expected{end}": f"gain_expected{end}" for end in ("", "_low", "_high")},
}
