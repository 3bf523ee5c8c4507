"""Make: from files of text to a model that can be shown, by one command and in the time that there is."""
