"""What results tell: read after a run, and never while one is made."""
