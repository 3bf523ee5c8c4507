"""Machine: what knows nothing of language: errors, settings, menus, folders of what is made, ranks, progress."""
