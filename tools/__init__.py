"""Programs for work on Tenure itself; they are no part of what is installed."""
