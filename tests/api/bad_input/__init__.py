"""Bad input and attacks, row by row; ``table`` says which test stands for which row."""
