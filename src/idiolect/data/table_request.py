# SPDX-License-Identifier: Apache-2.0
"""What `Federation.from_table` is asked: the roles of columns, the split, the scaling."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from idiolect.core.checks import RequestError
from idiolect.data.kinds import TEXT
from idiolect.data.preparation import FEDERATED, GIVEN, LOCAL, WAYS
from idiolect.data.split import HeldOut, Split
from idiolect.data.task import check_kind

if TYPE_CHECKING:
    from idiolect.data.preprocessing import Preprocessing

SCALINGS = ("standard", "none")


@dataclasses.dataclass(frozen=True)
class TableRequest:
    """See `Federation.from_table`."""

    client: str
    targets: tuple[str, ...]
    features: tuple[str, ...] | None
    drop: tuple[str, ...]
    categorical: tuple[str, ...]
    weight: str | None
    task: str | None
    split: Split
    held_out: HeldOut
    seed: int
    scaling: str
    target_scaling: str
    preparation: str = FEDERATED
    recipe: Preprocessing | None = None  # that is given; None: it is fitted
    alone: bool = False  # the table of one client, at its site

    def __post_init__(self) -> None:
        if self.preparation not in WAYS or (self.preparation == GIVEN) != (self.recipe is not None):
            raise RequestError(
                f'preparation must be one of {", ".join(WAYS)}, and "given" needs a recipe, got {self.preparation!r} '
                f"{'with' if self.recipe is not None else 'without'} one."
            )
        check_kind(self.task)
        self.split.check()
        for word, value in (("scaling", self.scaling), ("target_scaling", self.target_scaling)):
            if value not in SCALINGS:
                raise RequestError(f"{word} must be one of {', '.join(SCALINGS)}, got {value!r}.")

    @property
    def of_targets(self) -> str:
        """How targets are scaled: not at all where nothing about numbers is exchanged."""
        return "none" if self.preparation == LOCAL else self.target_scaling

    @property
    def other_roles(self) -> dict[str, str | None]:
        """The column of each role besides client and target."""
        split = self.split
        roles = {"split": split.split_column, "group": split.group_column, "time": split.time_column}
        return roles | {"weight": self.weight}

    @property
    def named(self) -> tuple[str, ...]:
        """Inputs that the user asked for by name: never left out without an error."""
        return (*(self.features or ()), *self.categorical)

    @property
    def kinds(self) -> dict[str, str]:
        """Columns whose kind is known: texts are read exactly as written, whatever they hold."""
        names = (self.client, self.split.group_column, self.split.split_column, *self.categorical)
        given = {} if self.recipe is None else self.recipe.kinds
        return given | {name: TEXT for name in names if name is not None}
