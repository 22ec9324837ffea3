"""Pages for stores of tests."""


def pages(count: int, first: int = 0, padding: str = "") -> list[tuple[int, dict[str, str]]]:
    """Keys and requests of `count` pages."""
    return [
        (number * 977 + 1, {"url": f"http://h/{number}{padding}"}) for number in range(first, first + count)
    ]
