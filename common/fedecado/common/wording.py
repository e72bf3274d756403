"""Phrases that error messages share."""

from collections.abc import Callable, Iterable, Sequence


def did_you_mean(word: str, names: Iterable[str], part: Callable[[str], str] = str) -> str:
    """A clause to end an error with, `; did you mean 'x'?`, or nothing when no name is close.

    `part` picks what of each name is compared with `word`: whatever all names share would make
    any two of them look alike.
    """
    from difflib import get_close_matches

    meant = {part(name): name for name in sorted(names)}
    close = get_close_matches(word, meant, n=1)
    return f"; did you mean {meant[close[0]]!r}?" if close else ""


def listing(problems: Sequence[str], what: str) -> str:
    """One problem as it is; several below a line that counts them."""
    if len(problems) == 1:
        return problems[0]
    return f"{len(problems)} {what}:" + "".join(f"\n  {problem}" for problem in problems)
