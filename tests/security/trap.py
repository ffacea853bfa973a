"""What nobody may import because a payload names it: whoever does is remembered."""

SPRUNG: list[str] = ["imported"]


def spring(*_: object) -> str:
    """Stand for what an attacker would like to run."""
    SPRUNG.append("called")
    return "sprung"
