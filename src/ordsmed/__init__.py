"""Ordsmed makes contextual language models: from raw text to a folder that Hugging Face loads."""

__version__ = "0.1.0"
