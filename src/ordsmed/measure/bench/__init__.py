"""Machine: speeds anyone can measure again."""
