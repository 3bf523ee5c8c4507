"""What is learned: objectives, tasks, masking, sampling, phases, schedules, optimizers, official scores."""
