"""Machine: what is learned: the objective's and the task's seams, masking, sampling, schedules, phases, groups."""
