import re

from gnnscale.report.page.words import _MEANINGS, words


def test_words_of_a_page_in_their_order() -> None:
    page = "<style>link</style><p title='csim'>Steps &amp; the RSS of a worker; a mini-batch</p>"
    found = words(page)
    assert re.findall("<dt>(.*?)</dt>", found) == ["step", "mini-batch", "RSS"]
    assert "<dd>one update of the weights, by the mini-batches of all devices</dd>" in found


def test_a_meaning_is_one_plain_sentence() -> None:
    assert all(re.fullmatch("[^.<>]+", meaning) for meaning in _MEANINGS.values())
