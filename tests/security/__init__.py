"""Who may do what, the weaknesses of peers, and where no secret may appear."""
