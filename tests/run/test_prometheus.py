from gnnscale.run.prometheus import text_format


def test_gauges_with_labels() -> None:
    values = {("valid_metric", "hits@10"): 0.5, ("epoch", ""): 3, ("mteps", ""): 2.5}
    assert text_format('a"b\\c\n', values).splitlines() == [
        "# HELP gnnscale_epoch Epochs that are done.",
        "# TYPE gnnscale_epoch gauge",
        r'gnnscale_epoch{run="a\"b\\c\n"} 3.0',
        "# HELP gnnscale_valid_metric Metric of the last validation.",
        "# TYPE gnnscale_valid_metric gauge",
        r'gnnscale_valid_metric{run="a\"b\\c\n",metric="hits@10"} 0.5',
        "# HELP gnnscale_edges_per_second Edges traversed per second in the last epoch.",
        "# TYPE gnnscale_edges_per_second gauge",
        r'gnnscale_edges_per_second{run="a\"b\\c\n"} 2500000.0',
    ]
