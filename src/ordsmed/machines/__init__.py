"""Before and around a long job: a machine checked, software installed, jobs submitted, time estimated."""
