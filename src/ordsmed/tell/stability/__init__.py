"""How steady a training is: one recipe with several seeds, and two recipes compared by the same seeds."""
