"""Naive Bayes over token counts: a baseline for fine-tuned classifiers that needs no training of a network."""

import numpy as np

from ordsmed.data.features import Features
from ordsmed.data.pieces import Ints


def counted_classes(train: Features, features: Features, classes: int) -> Ints | None:
    """Return the most likely class of each example; None if counts of the two feature sets cannot be compared.

    Whole words (of an ELMo) cannot be compared, because each file numbers them separately.
    """
    if train.labels is None or train.characters is not None or not len(features):
        return None
    ids, labels = np.asarray(train.ids, np.int64), np.repeat(np.asarray(train.labels), train.sizes)
    vocabulary = int(max(ids.max(), features.ids.max())) + 1
    likeliest, best = np.zeros(len(features), np.int64), np.full(len(features), -np.inf)
    for label in range(classes):
        counts = np.bincount(ids[labels == label], minlength=vocabulary) + 1.0
        prior = np.log(np.count_nonzero(np.asarray(train.labels) == label) + 1.0)
        sums = np.add.reduceat(np.log(counts / counts.sum())[features.ids], features.starts[:-1]) + prior
        likeliest, best = np.where(sums > best, label, likeliest), np.maximum(sums, best)
    return likeliest
