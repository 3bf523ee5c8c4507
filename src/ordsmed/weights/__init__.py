"""Reading and writing files of weights; opening, converting and exporting models."""
