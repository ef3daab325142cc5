# SPDX-License-Identifier: Apache-2.0
"""Ten tables with clients, and their ten splits, written as CSV files that both sides of `answers` read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from idiolect.data.conversions import HOSPITALS
from idiolect.data.dataset_files import dataset_file
from idiolect.data.shared_files import HEART_CATEGORIES, heart_numbers
from idiolect.data.sources import read_npz
from idiolect.data.split import TEST, Split, plan

CLIENT, TARGET, PART, GROUP = "client", "target", "part", "group"
REGRESSION, CLASSIFICATION = "regression", "classification"
Frame = pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Table:
    """One table: where its rows come from, what is predicted, and whether its clients were dealt at random."""

    name: str
    kind: str
    build: Callable[[], Frame]
    shuffled: bool = False

    def rows(self, seed: int) -> Frame:
        """All rows with the column `part` of the split `seed`; clients and texts are texts."""
        frame = self.build()
        names, owner = np.unique(frame[CLIENT].to_numpy(str), return_inverse=True)
        groups = frame[GROUP].to_numpy(str) if GROUP in frame else None
        parts = plan(owner, tuple(map(str, names)), Split(), seed, groups=groups).parts
        # which rows validate is each side's own business: classical fits cross-validate, compare draws folds
        return frame.assign(**{PART: np.where(parts == TEST, "test", "train")})


def write_rows(table: Table, seed: int, folder: Path) -> tuple[Frame, Path]:
    """The rows of one split, and the CSV file that holds them."""
    rows = table.rows(seed)
    path = folder / f"{table.name}-{seed}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(path, index=False)
    return rows, path


def feature_names(rows: Frame) -> list[str]:
    """The columns to predict from."""
    return [name for name in rows.columns if name not in (CLIENT, TARGET, PART, GROUP)]


def _frame(features: Mapping[str, Any], target: Any, clients: Any, word: str) -> Frame:
    """Client numbers become texts, so that no reader takes them for numbers."""
    named = [f"{word} {int(number):03d}" for number in clients]
    return pd.DataFrame({**features, TARGET: target, CLIENT: named})


def _numbered(values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{number}": values[:, number] for number in range(values.shape[1])}


def heart_disease() -> Frame:
    """920 patients of 4 hospitals, many values missing: is there disease?"""
    parts = []
    for hospital in HOSPITALS:
        parts.append(heart_numbers(hospital).to_pandas().assign(**{CLIENT: hospital}))
    frame = pd.concat(parts, ignore_index=True)
    for name in HEART_CATEGORIES:
        frame[name] = [None if np.isnan(code) else f"{name} {int(code)}" for code in frame[name]]
    return frame.assign(**{TARGET: np.where(frame.pop("num") > 0, "disease", "none")})


def school() -> Frame:
    """15,362 pupils of 139 schools, 27 features: exam score."""
    content = read_npz(dataset_file("tabular/school139.npz.xz"))
    return _frame(_numbered(content["x"][:, :27]), content["y"].astype(float), content["school"], "school")


def landmine() -> Frame:
    """14,820 radar images of 29 minefields, 9 features: is there a mine (6 %)?"""
    content = read_npz(dataset_file("tabular/landmine29.npz.xz"))
    words = np.where(content["y"] > 0, "mine", "clutter")
    return _frame(_numbered(content["x"]), words, content["task"], "field")


def vehicle() -> Frame:
    """1,860 recordings of 23 sensors, 100 features: which of two vehicles?"""
    content = read_npz(dataset_file("tabular/vehicle23.npz.xz"))
    words = np.where(content["y"] > 0, "tracked", "wheeled")
    return _frame(_numbered(content["x"]), words, content["sensor"], "sensor")


def uci_har_summary() -> Frame:
    """10,299 windows of 30 people, mean and deviation of 9 channels: which of 6 activities? Split by segment."""
    content = read_npz(dataset_file("tabular/uci_har_windows.npz.xz"))
    windows = content["x"] * content["step"][:, None]
    values = np.concatenate([windows.mean(axis=2), windows.std(axis=2)], axis=1)
    activities = np.array([str(name).lower() for name in content["activities"]])
    frame = _frame(_numbered(values), activities[content["y"]], content["subject"], "person")
    return frame.assign(**{GROUP: [f"segment {int(number)}" for number in content["segment"]]})


def grunfeld() -> Frame:
    """Investment of 11 firms in 20 years, from value, capital and year (statsmodels `grunfeld`)."""
    from statsmodels.datasets import grunfeld as source

    frame = source.load_pandas().data
    return frame.rename(columns={"firm": CLIENT, "invest": TARGET})


def fertility() -> Frame:
    """Births per woman in up to 219 countries, every fourth year from 1960, from the year (statsmodels `fertility`).

    Clients with their own intercepts and their own slopes, 13 rows each at most.
    """
    from statsmodels.datasets import fertility as source

    wide = source.load_pandas().data
    years = [str(year) for year in range(1960, 2012, 4)]
    long = wide.melt(id_vars=["Country Code"], value_vars=years, var_name="year", value_name=TARGET).dropna()
    decades = (long["year"].astype(float) - 1985) / 10
    return pd.DataFrame(
        {"decade": decades, "decade squared": decades**2, TARGET: long[TARGET], CLIENT: long["Country Code"]}
    ).reset_index(drop=True)


def random_slopes() -> Frame:
    """Built: 60 clients of 40 rows, 8 features, logistic with random intercepts (sd 1) and slopes (sd 0.5)."""
    draws = np.random.default_rng(1)
    clients, rows, features = 60, 40, 8
    common = draws.normal(size=features) / 2
    own = common + 0.5 * draws.normal(size=(clients, features))
    intercepts = draws.normal(size=clients)
    inputs = draws.normal(size=(clients, rows, features))
    odds = np.einsum("mrf,mf->mr", inputs, own) + intercepts[:, None]
    yes = draws.random((clients, rows)) < 1 / (1 + np.exp(-odds))
    words = np.where(yes.reshape(-1), "yes", "no")
    return _frame(_numbered(inputs.reshape(-1, features)), words, np.repeat(np.arange(clients), rows), "client")


def diabetes_shuffled() -> Frame:
    """442 patients, 10 features (scikit-learn `diabetes`), dealt at random to 17 clients: no client effect."""
    from sklearn.datasets import load_diabetes

    content = load_diabetes(as_frame=True, scaled=False)
    return _frame(dict(content.data), content.target.to_numpy(), _dealt(len(content.target), 17), "client")


def anes96_shuffled() -> Frame:
    """944 voters, 8 features, Clinton or Dole (statsmodels `anes96`), dealt at random to 30 clients: no effect."""
    from statsmodels.datasets import anes96 as source

    frame = source.load_pandas().data
    features = {name: frame[name] for name in ("logpopul", "TVnews", "selfLR", "ClinLR", "DoleLR", "age", "educ")}
    features["income"] = frame["income"]
    return _frame(features, np.where(frame["vote"] > 0, "Dole", "Clinton"), _dealt(len(frame), 30), "client")


def _dealt(rows: int, clients: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(rows) % clients)


TABLES = (
    Table("heart_disease", CLASSIFICATION, heart_disease),
    Table("school", REGRESSION, school),
    Table("landmine", CLASSIFICATION, landmine),
    Table("vehicle", CLASSIFICATION, vehicle),
    Table("uci_har_summary", CLASSIFICATION, uci_har_summary),
    Table("grunfeld", REGRESSION, grunfeld),
    Table("fertility", REGRESSION, fertility),
    Table("random_slopes", CLASSIFICATION, random_slopes),
    Table("diabetes_shuffled", REGRESSION, diabetes_shuffled, shuffled=True),
    Table("anes96_shuffled", CLASSIFICATION, anes96_shuffled, shuffled=True),
)
