"""Tell: what runs did."""
