"""Splits: which documents are validation and test data, by a number drawn from each document's words.

"949,50,1" -> Shares(validation=0.05, test=0.001) -> borders -> draw < first: validation; < second: test; else train
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Shares:
    """The shares of validation and test documents."""

    validation: float = 0.01
    test: float = 0.0
    exact: bool = False

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: found {getattr(self, name)}; wanted a share of at least 0 and below 1")
        if self.validation + self.test >= 1:
            problem = f"{self.validation} and test {self.test}"
            raise ValueError(f"validation: found {problem}; wanted less than 1 together: the rest is trained on")

    @classmethod
    def read(cls, text: str, exact: bool) -> Shares:
        """Parse proportions of train, validation and test. If the first sum to less than 1, the next one is the
        rest.
        """
        wanted = 'one to three proportions such as "949,50,1" or "0.9,0.1"'
        try:
            numbers = [float(word) for word in re.split("[,/]", text)]
        except ValueError:
            raise ValueError(f"split: found {text!r}; wanted {wanted}") from None
        if len(numbers) < 3 and sum(numbers) < 1:
            numbers.append(1 - sum(numbers))
        numbers += [0.0] * (3 - len(numbers))
        total = sum(numbers)
        if len(numbers) > 3 or not all(0 <= n < float("inf") for n in numbers) or not numbers[0]:
            raise ValueError(f"split: found {text!r}; wanted {wanted}, the first above 0")
        return cls(numbers[1] / total, numbers[2] / total, exact)

    def without(self, *, validation: bool, test: bool) -> Shares:
        """Return the shares if validation or test is given by other texts. The other shares keep their proportions."""
        training = 1 - validation * self.validation - test * self.test
        return replace(
            self,
            validation=0.0 if validation else self.validation / training,
            test=0.0 if test else self.test / training,
        )

    def borders(self, draws: np.ndarray) -> tuple[int, int]:
        """Return two numbers: draws below the first are validation, draws below the second test.

        A split with a share gets at least one document, if others are left for training.
        """
        values = np.unique(draws)
        if not len(values):
            return 0, 0
        both = (self.validation, self.validation + self.test)
        if self.exact:
            draws = np.sort(draws)
            limits = [draws[min(round(len(draws) * share), len(draws) - 1)] for share in both]
        else:
            limits = [np.uint64(share * 2**64) for share in both]
        room = len(values) - 1
        first = min(max(int(np.searchsorted(values, limits[0])), int(self.validation > 0)), room)
        second = min(max(int(np.searchsorted(values, limits[1])), first + int(self.test > 0)), room)
        return int(values[first]), int(values[second])
