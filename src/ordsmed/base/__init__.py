"""Machine: what knows nothing of language: errors, settings, menus, folders of deeds, ranks, progress."""
