from pathlib import Path

import pytest
from tools import check_hls

HEAD = """
#include "kernels/messages.hpp"
using namespace gnnscale::fpga;
"""
#: Rule, what breaks it, and a part of the finding.
PLANTED = {
    "a pipeline in a loop": (
        "loops",
        """void f(Stream<int>& out, int rows) {
          for_each_row:
          for (int row = 0; row < rows; ++row) {
            LOOP(words)
            for (int i = 0; i < row; ++i) {
              PIPELINED(words, 1, 2);
              out.write(i);
            }
          }
        }""",
        "entered again and again",
    ),
    "a loop in a pipeline": (
        "loops",
        """void f(Stream<int>& out, int rows) {
          LOOP(all)
          for (int row = 0; row < rows; ++row) {
            PIPELINED(all, 1, 2);
            int sum = 0;
            inner:
            for (int i = 0; i < row; ++i) sum += i;
            out.write(sum);
          }
        }""",
        "inside of the pipelined loop all",
    ),
    "an address": (
        "pointers",
        "void f(int i) { Word all[4]; const Word* one = &all[i]; (void)one; }",
        "&all[i] takes an address",
    ),
    "a static variable": ("static", "int f() { static int calls = 0; return ++calls; }", "calls"),
    "processes of a loop": (
        "region",
        """void process(int i) {}
        void f() {
#pragma HLS dataflow
          for (int i = 0; i < 4; ++i) {
#pragma HLS unroll
            process(i);
          }
        }""",
        "unroll and dataflow",
    ),
    "a promise": (
        "dependences",
        """void f(Word (&rows)[64]) {
          LOOP(words)
          for (int i = 0; i < 9; ++i) {
            PIPELINED(words, 1, 2);
#pragma HLS dependence variable = rows type = inter false
            rows[i] = filled(0.0F);
          }
        }""",
        "without a reason",
    ),
    "an array of two ports": (
        "partitions",
        """void f(Stream<int>& in, Stream<int> (&out)[8]) {
          int held[8] = {};
          LOOP(turns)
          for (int i = 0; i < 9; ++i) {
            PIPELINED(turns, 1, 2);
            held[i % 8] = in.read();
            for (int pe = 0; pe < 8; ++pe) {
#pragma HLS unroll
              out[pe].write(held[pe]);
            }
          }
        }""",
        "held has two ports for all iterations of pe",
    ),
    "a stream without a depth": (
        "fifos",
        """void process(Stream<int>& out) {}
        void f() {
#pragma HLS dataflow
          Stream<int> words;
          process(words);
        }""",
        "words has no depth and no storage",
    ),
    "two reads of a stream": (
        "streams",
        """void f(Stream<int>& in, Stream<int>& out) {
          LOOP(pairs)
          for (int i = 0; i < 9; ++i) {
            PIPELINED(pairs, 1, 2);
            const int first = in.read();
            out.write(first + in.read());
          }
        }""",
        "in.read more than once in an iteration of pairs",
    ),
    "another latency": (
        "operators",
        """float f(float a, float b) {
          const float sum = a + b;
#pragma HLS bind_op variable = sum op = fadd latency = 5
          return sum;
        }""",
        "no constant of operators.hpp",
    ),
    "a division": (
        "divisions",
        """void f(Stream<int>& out, int turns) {
          LOOP(words)
          for (int i = 0; i < 9; ++i) {
            PIPELINED(words, 1, 2);
            out.write(i % turns);
          }
        }""",
        "a division by turns",
    ),
    "a second region": (
        "call sites",
        """void run() {
#pragma HLS dataflow
        }
        void f() { run(); }
        void g() { run(); }""",
        "run is called again",
    ),
}
#: What is no violation, though it looks like one.
ALLOWED = """
void f(Stream<int>& in, Stream<int>& out, bool twice) {
  LOOP(words)
  for (int i = 0; i < 9; ++i) {
    PIPELINED(words, 1, 2);
    if (i == 8) {
      out.write(in.read());
      continue;
    }
    if (twice) {
      out.write(2 * in.read());
    } else {
      out.write(in.read());
    }
    for (int lane = 0; lane < 4; ++lane) {
#pragma HLS unroll
      count(Count::edges);
    }
  }
}
"""


def findings(folder: Path, text: str) -> list[check_hls.Finding]:
    planted = folder / "planted.cpp"
    planted.write_text(HEAD + text)
    return check_hls.findings(planted, [folder])


@pytest.mark.long
def test_the_kernels_keep_all_rules(capsys) -> None:
    assert check_hls.main([]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.long
@pytest.mark.parametrize(("rule", "text", "expected"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_found(tmp_path: Path, rule: str, text: str, expected: str) -> None:
    found = findings(tmp_path, text)
    assert [each.rule for each in found] == [rule]
    assert expected in found[0].text


def test_every_rule_has_a_violation() -> None:
    planted = {rule for rule, _, _ in PLANTED.values()}
    assert planted == {*check_hls.RULES, "call sites"}


def test_branches_of_an_iteration_do_not_meet(tmp_path: Path) -> None:
    assert findings(tmp_path, ALLOWED) == []


def test_what_does_not_compile_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"planted\.cpp: \d+: .*undeclared"):
        findings(tmp_path, "void f() { nothing(); }")
