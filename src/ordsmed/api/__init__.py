"""Machine: what Python calls, and verbs as well: models that are asked, trainings that are started."""
