"""BabyLM's evaluation: its folders, regressions of reading times, and the ages at which words are learned."""
