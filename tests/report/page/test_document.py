from xml.etree import ElementTree

from gnnscale.report.page.document import cell, document, heading, section, table


def test_a_document_is_whole_and_escapes_what_it_is_given() -> None:
    rows = [[cell("<b>", is_text=True), cell("1"), cell("a long text", long=True)]]
    page = document(
        "A & B",
        heading("A & B", "<note>") + section("One < two", table(["x", "y", "z"], rows)),
    )
    assert page.startswith("<!doctype html>")
    assert "A &amp; B" in page
    assert "&lt;note&gt;" in page
    assert "One &lt; two" in page
    assert "://" not in page
    assert "default-src 'none'" in page
    body = page[page.index("<table>") : page.index("</table>") + len("</table>")]
    found = ElementTree.fromstring(body)
    assert [each.text for each in found.iter("td")] == ["<b>", "1", "a long text"]
    assert [each.get("class") for each in found.iter("td")] == ["left", None, "text"]
