# SPDX-License-Identifier: Apache-2.0
"""What a method did for each client: its answer alone, shared and personal, and the verdict, over seeds."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from idiolect.report.folder import Run, mean_known, numbers, of_method

VERDICTS = ("helped", "hurt", "unclear", "same")


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
    over_one: np.ndarray  # gain against it
    over_one_low: np.ndarray
    over_one_high: np.ndarray
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


def client_table(run: Run, method: str) -> ClientTable:
    """Gather one method's rows of clients.parquet into one row per client."""
    rows = of_method(run.clients, method)
    names = np.asarray(rows["client"].cast(pa.string()).to_pylist(), dtype=object)
    seeds, seed_of = np.unique(rows["seed"].to_numpy(), return_inverse=True)
    client, client_of = _in_order(names)

    def spread(column: str) -> np.ndarray:
        cells = np.full((len(seeds), len(client)), np.nan)
        cells[seed_of, client_of] = numbers(rows, column)
        return cells

    recorded = np.full((len(seeds), len(client)), "", dtype=object)
    if "verdict" in rows.column_names:
        recorded[seed_of, client_of] = [verdict or "" for verdict in rows["verdict"].to_pylist()]
    personal, seed_gain = spread("score"), spread("gain")
    gain, low, high = (mean_known(spread(f"gain{end}")) for end in _ENDS)
    moved = [mean_known(spread(f"gain_expected{end}")) for end in _ENDS]
    expected = [np.where(np.isnan(moved[0]), own, one) for own, one in zip((gain, low, high), moved)]
    over_one = [mean_known(spread(f"gain_over_one{end}")) for end in _ENDS]
    return ClientTable(
        method=method,
        seeds=seeds,
        client=client,
        train_rows=mean_known(spread("train_rows") + (spread("validation_rows") if _is_refit(run, method) else 0)),
        test_rows=mean_known(spread("test_rows")),
        alone=mean_known(spread("local_score")),
        shared=mean_known(spread(f"test_shared_{run.score}_selected")),
        personal=mean_known(personal),
        gain=gain,
        gain_low=low,
        gain_high=high,
        expected=expected[0],
        expected_low=expected[1],
        expected_high=expected[2],
        one=mean_known(spread("one_score")),
        over_one=over_one[0],
        over_one_low=over_one[1],
        over_one_high=over_one[2],
        verdict=np.where(np.isnan(gain), "", _agreed(recorded)),
        held_out=np.nan_to_num(mean_known(spread("held_out"))) > 0,
        seed_personal=personal,
        seed_gain=seed_gain,
    )


def _is_refit(run: Run, method: str) -> bool:
    """Whether the method's models were trained on validation rows, too."""
    return run.summary.refit and any(entry.tuned for entry in run.methods if entry.method == method)


_ENDS = ("", "_low", "_high")


def _in_order(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct names as they first appear, and each row's position among them."""
    position = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.asarray(list(position), dtype=object), np.asarray([position[name] for name in names], int)


def _agreed(recorded: np.ndarray) -> np.ndarray:
    """The verdict that all of a client's seeds have; 'unclear' where an older folder judged each seed by itself."""
    if not len(recorded):
        return np.full(recorded.shape[1], "", dtype=object)
    return np.where((recorded == recorded[0]).all(axis=0), recorded[0], "unclear")
