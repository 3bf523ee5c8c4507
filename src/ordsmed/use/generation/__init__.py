"""Text generation: sampling options, token-by-token continuation, filling of masks, prompts, interactive sessions."""
