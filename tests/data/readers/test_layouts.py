import gzip
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from gnnscale.core.errors import GraphError
from gnnscale.data import Snap


def lists(graph):
    """In-neighbors of each vertex."""
    return [each.tolist() for each in np.split(graph.indices, graph.indptr[1:-1])]


def test_graphsaint(prepared_in):
    raw, dataset = prepared_in("graphsaint")
    graph = dataset.open()
    assert lists(graph) == [[1, 3], [], [0], []]
    assert (graph.labels.tolist(), graph.train_idx.tolist()) == ([2, 1, 0, 2], [0, 3])
    assert graph.features.dtype == np.float32
    assert (graph.features[3].tolist(), graph.metric) == ([6, 7], "accuracy")
    classes = {"0": [1, 0, 1], "1": [0, 0, 0], "2": [1, 1, 1], "3": [0, 1, 0]}
    (raw / "class_map.json").write_text(json.dumps(classes))
    graph = dataset.open()
    assert graph.labels[2].tolist() == [1, 1, 1]
    assert (graph.num_classes, graph.metric) == (3, "micro_f1")


class Malicious:
    def __reduce__(self):
        return print, ("stolen",)


def test_mag240m(prepared_in, capsys):
    raw, dataset = prepared_in("mag240m")
    raw.rename(raw.parent / "mag240m_kddcup2021")
    dataset = replace(dataset, raw=str(raw.parent))
    graph = dataset.open()
    assert lists(graph) == [[], [0, 3], [1], []]
    assert (graph.feature_dtype, graph.features[3].tolist()) == ("float16", [9, 10, 11])
    assert (graph.labels.tolist(), graph.num_classes) == ([7, 152, -1, -1], 153)
    assert (graph.train_idx.tolist(), graph.valid_idx.tolist()) == ([0], [1])
    assert graph.test_idx.tolist() == [2]
    torch.save({"train": Malicious()}, raw.parent / "mag240m_kddcup2021" / "split_dict.pt")
    with pytest.raises(GraphError, match=r"data.pkl: .*it names builtins.print"):
        dataset.prepare(force=True)
    assert capsys.readouterr().out == ""


def snap(tmp_path, text, name="toy.txt"):
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (tmp_path / name).write_bytes(data)
    share = {"train_fraction": 0.3, "valid_fraction": 0.3}
    return Snap(name="toy", raw=str(tmp_path), num_classes=2, num_features=4, **share)


@pytest.mark.parametrize(
    ("name", "mark"), [("toy.txt", "\t"), ("toy.txt.gz", " "), ("toy.txt", ",")]
)
def test_snap_ids_lose_their_gaps(tmp_path, caplog, name, mark):
    text = f"# two\n# comments\n70{mark}5\n9000000000{mark}5\n5{mark}70\n70{mark}8\n"
    graph = snap(tmp_path, text, name).open()
    # 5, 8, 70 and 9000000000 become 0 to 3.
    assert lists(graph) == [[2, 3], [2], [0], []]
    assert graph.num_features == 4
    assert sorted(np.bincount(graph.labels)) == [2, 2]
    caplog.set_level("INFO")
    graph = snap(tmp_path, "0 1 0.5 1999\n1 2 0.5 1999\n3 4 1 1\n", name).open()
    assert lists(graph) == [[], [0], [1], [], [3]]
    assert "columns after the first two are not read" in caplog.text


def test_musae_words_and_new_ids(prepared_in):
    raw, dataset = prepared_in("musae")
    for file in list(raw.iterdir()):
        file.rename(raw / file.name.replace("toy", "musae_DE"))
    target = "id,mature,new_id\n900,True,2\n901,False,0\n902,True,1\n"
    (raw / "musae_DE_target.csv").write_text(target)
    (raw / "musae_ES_target.csv").write_text("another language")
    graph = replace(dataset, part="DE", undirected=True).open()
    assert graph.labels.tolist() == [0, 1, 1]
    assert graph.features.tolist() == [[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
    assert lists(graph) == [[1], [0, 2], [1]]


def test_musae_archives_read_as_what_they_unpack_to(prepared_in):
    raw, dataset = prepared_in("musae_zip")
    graph = dataset.open()
    assert replace(dataset, raw=str(raw)).open().content == graph.content
    with zipfile.ZipFile(raw / "toy.zip") as members:
        members.extractall(raw / "unpacked")
    assert replace(dataset, raw=str(raw / "unpacked")).open().content == graph.content


def test_musae_words_keep_their_numbers_and_files_are_one_each(prepared_in):
    raw, dataset = prepared_in("musae")
    (raw / "toy_target.csv").write_text("id,target\n0,cat\n1,ant\n2,cat\n")
    assert dataset.open().labels.tolist() == [1, 0, 1]
    # A part is looked for inside the folder.
    with pytest.raises(GraphError, match=r"0 files \*raw\*target.csv"):
        replace(dataset, part="raw").prepare()
    (raw / "other_toy_edges.csv").touch()
    with pytest.raises(GraphError, match="2 files"):
        dataset.prepare(force=True)


def test_ogb_multilabel(prepared_in):
    raw, dataset = prepared_in("ogb_text")
    labels = b"0,1,1\n1,0,0\n0,0,0\n1,1,1\n"
    (raw / "raw" / "node-label.csv.gz").write_bytes(gzip.compress(labels))
    graph = dataset.open()
    assert graph.multilabel
    assert (graph.num_classes, graph.metric) == (3, "roc_auc")
