"""What pictures show."""

from xml.etree import ElementTree

__all__ = ["SVG", "assert_nothing_leaves", "texts"]

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    """Return the texts of a picture, in their order."""
    return [each.text or "" for each in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def assert_nothing_leaves(picture: str) -> None:
    """Assert that all rectangles and texts lie inside of a picture."""
    root = ElementTree.fromstring(picture)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for each in root.iter(f"{SVG}rect"):
        assert 0 <= float(each.get("x", 0)) <= width - float(each.get("width", 0))
        assert 0 <= float(each.get("y", 0)) <= height - float(each.get("height", 0))
    for each in root.iter(f"{SVG}text"):
        size = 6.5 * len(each.text or "") * (each.get("text-anchor") == "start")
        assert 0 <= float(each.get("x", 0)) <= width - size
        assert 0 <= float(each.get("y", 0)) <= height
