"""Training methods: objectives, tasks, masking, sampling, phases, schedules, optimizers, official scores."""
