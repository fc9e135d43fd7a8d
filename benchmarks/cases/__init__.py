"""What is timed: cases by family, their lists, and cases that nobody listed."""
