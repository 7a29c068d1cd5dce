// Each part of fpga/rtl beside the process that it was written after: the same random streams, by
// the same random pace of what feeds and drains it. Prints a line of JSON for each: what came
// out, and when.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "gnnscale_fpga/functions.hpp"
#include "rtl/processes.hpp"

namespace gnnscale::fpga {
namespace {

using D = Design<GNNSCALE_N, GNNSCALE_M>;

// Elements of a stream, and the cycles that pass before each.
template <class T>
struct Feed {
  std::vector<T> elements;
  std::vector<int> gaps;
};

template <class T>
struct Found {
  std::vector<T> elements;
  std::vector<int64_t> cycles;
};

// How often a process that feeds or drains a stream rests, and for how long at most.
struct Pace {
  double rests;
  int max_cycles;
};

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(generator_); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(generator_); }
  Word word() {
    std::normal_distribution<float> normal;
    Word out;
    for (float& lane : out.lane) lane = normal(generator_);
    return out;
  }
  Pace pace() {
    const double rests[] = {0, 0, 0.05, 0.5};
    return {rests[below(4)], between(1, 12)};
  }
  int gap(const Pace& pace) { return chance(pace.rests) ? between(1, pace.max_cycles) : 0; }
  template <class T>
  Feed<T> feed(std::vector<T> elements) {
    const Pace pace = this->pace();
    std::vector<int> gaps;
    for (size_t i = 0; i < elements.size(); ++i) gaps.push_back(gap(pace));
    return {std::move(elements), std::move(gaps)};
  }
  std::vector<int> gaps(int count) {
    const Pace pace = this->pace();
    std::vector<int> found;
    for (int i = 0; i < count; ++i) found.push_back(gap(pace));
    return found;
  }
  Feed<Word> words(int count) {
    std::vector<Word> found;
    for (int i = 0; i < count; ++i) found.push_back(word());
    return feed(std::move(found));
  }

 private:
  std::mt19937 generator_;
};

template <class T>
void feed(const Feed<T>& what, Stream<T>& out) {
  for (size_t i = 0; i < what.elements.size(); ++i) {
    if (what.gaps[i] > 0) csim::Simulation::current().cycle(what.gaps[i]);
    out.write(what.elements[i]);
    csim::Simulation::current().cycle();
  }
}

template <class T>
void drain(const std::vector<int>& gaps, Stream<T>& in, Found<T>& found) {
  for (const int gap : gaps) {
    if (gap > 0) csim::Simulation::current().cycle(gap);
    found.elements.push_back(in.read());
    found.cycles.push_back(csim::Simulation::current().now());
    csim::Simulation::current().cycle();
  }
}

bool same(const Word& a, const Word& b) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (a.lane[lane] != b.lane[lane]) return false;
  }
  return true;
}
bool same(const Message& a, const Message& b) {
  return a.end == b.end && (a.end || (same(a.value, b.value) && a.destination == b.destination));
}

// What came out of a part, beside what came out of its process.
struct Comparison {
  int64_t elements = 0, different = 0, late = 0, csim_cycles = 0, rtl_cycles = 0;

  template <class T>
  void add(const Found<T>& csim, const Found<T>& rtl) {
    for (size_t i = 0; i < csim.elements.size(); ++i) {
      ++elements;
      if (!same(csim.elements[i], rtl.elements[i])) ++different;
      if (csim.cycles[i] != rtl.cycles[i]) ++late;
    }
  }
  void print(const char* part, const std::string& what, unsigned seed) const {
    std::printf(
        R"({"part":"%s","what":"%s","seed":%u,"elements":%lld,"different":%lld,"other_cycle":%lld,)"
        R"("csim":%lld,"rtl":%lld})"
        "\n",
        part, what.c_str(), seed, static_cast<long long>(elements),
        static_cast<long long>(different), static_cast<long long>(late),
        static_cast<long long>(csim_cycles), static_cast<long long>(rtl_cycles));
  }
};

// Messages to one PE, as they are of graphs whose vertices have as many neighbours, or few of them
// nearly all.
std::vector<Message> messages(Random& random, int passes, int destinations, int stride, int first) {
  std::vector<Message> found;
  const double power = random.chance(0.5) ? 1 : 6;
  for (int pass = 0; pass < passes; ++pass) {
    for (int left = random.below(500); left > 0; --left) {
      const double place = std::pow(random.below(1 << 20) / double{1 << 20}, power);
      const auto row = static_cast<uint32_t>(place * destinations);
      found.push_back({random.word(), row * static_cast<uint32_t>(stride) + first, false});
    }
    found.push_back({filled(0.0F), 0, true});
  }
  return found;
}

void compare_gather(unsigned seed) {
  Random random(seed);
  static HalfOfSums<D> first_sums, second_sums;
  Task task = {};
  task.mode = random.chance(0.5) ? Mode::forward : Mode::backward;
  const bool forward = task.mode == Mode::forward;
  task.passes = random.between(1, 4);
  task.sums = task.unclear = kRowMultiple / D::kPes * random.between(1, 25);
  task.own = forward && random.chance(0.3) ? D::kPes * random.below(task.sums) : 0;
  const auto in = random.feed(messages(random, task.passes, task.sums, D::kPes, 1));
  const int words = task.passes * task.sums;
  const std::vector<int> gaps = random.gaps(words), even = random.gaps(words / 2),
                         odd = random.gaps(words / 2);
  Comparison comparison;
  Found<Word> found[2][3];
  for (int rtl = 0; rtl < 2; ++rtl) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAM(Message, incoming, 8);
    STREAM(Word, even_sources, 4);
    STREAM(Word, odd_sources, 4);
    STREAM(Word, gathered, 2);
    STREAM(Word, even_out, 4);
    STREAM(Word, odd_out, 4);
    Dataflow region;
    region.add("feed", -1, feed<Message>, in, incoming);
    if (rtl == 0) {
      region.add("gather", -1, gather<D, WeightedSum>, task, first_sums, second_sums, incoming,
                 even_sources, odd_sources, gathered, even_out, odd_out);
    } else {
      region.add("gather", -1, rtl::gather<D>, task, first_sums, incoming, gathered, even_out,
                 odd_out);
    }
    if (forward) {
      region.add("drain", -1, drain<Word>, gaps, gathered, found[rtl][0]);
    } else {
      region.add("drain", 0, drain<Word>, even, even_out, found[rtl][1]);
      region.add("drain", 1, drain<Word>, odd, odd_out, found[rtl][2]);
    }
    region.run();
    (rtl == 0 ? comparison.csim_cycles : comparison.rtl_cycles) = simulation.now();
  }
  for (int i = 0; i < 3; ++i) comparison.add(found[0][i], found[1][i]);
  comparison.print("gather", forward ? "forward" : "backward", seed);
}

void compare_switch(unsigned seed) {
  Random random(seed);
  Task task = {};
  task.passes = random.between(1, 6);
  Feed<Message> in[2];
  int to[2] = {task.passes, task.passes};
  for (auto& each : in) {
    each = random.feed(messages(random, task.passes, 1000, 1, 0));
    for (const Message& message : each.elements) {
      if (!message.end) ++to[message.destination % 2];
    }
  }
  const std::vector<int> gaps[2] = {random.gaps(to[0]), random.gaps(to[1])};
  Comparison comparison;
  Found<Message> found[2][2];
  for (int rtl = 0; rtl < 2; ++rtl) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAMS(Message, incoming, D::kPes, 8);
    STREAMS(Message, outgoing, D::kPes, 8);
    Dataflow region;
    for (int i = 0; i < 2; ++i) region.add("feed", i, feed<Message>, in[i], incoming[i]);
    if (rtl == 0) {
      region.add("route", -1, route<D, Message>, task, 1, incoming, outgoing);
    } else {
      region.add("route", -1, rtl::route<D>, task, incoming, outgoing);
    }
    for (int i = 0; i < 2; ++i) {
      region.add("drain", i, drain<Message>, gaps[i], outgoing[i], found[rtl][i]);
    }
    region.run();
    (rtl == 0 ? comparison.csim_cycles : comparison.rtl_cycles) = simulation.now();
  }
  for (int i = 0; i < 2; ++i) comparison.add(found[0][i], found[1][i]);
  comparison.print("switch", "messages", seed);
}

void compare_scatter(unsigned seed) {
  Random random(seed);
  Task task = {};
  task.mode = random.chance(0.5) ? Mode::forward : Mode::backward;
  task.passes = random.between(1, 4);
  task.own = random.chance(0.3) ? random.below(60) : 0;
  std::vector<Edge> edges;
  std::vector<Row> rows;
  for (int pass = 0; pass < task.passes; ++pass) {
    const int sources = random.between(1, 100);
    for (int source = 0; source < sources; ++source) {
      const int degree = random.chance(0.2) ? random.below(20) : random.below(3);
      for (int i = 0; i < degree; ++i) {
        const Word weight = random.word();
        edges.push_back({source, static_cast<uint32_t>(random.below(100)), weight.lane[0], false});
      }
      if (degree > 0) {
        Row row;
        row.value = random.word();
        row.source = source;
        rows.push_back(row);
      }
    }
    edges.push_back({sources - 1, kNoDestination, 0.0F, true});
  }
  const std::vector<int> gaps = random.gaps(static_cast<int>(edges.size()));
  const auto fed_edges = random.feed(std::move(edges));
  const auto fed_rows = random.feed(std::move(rows));
  Comparison comparison;
  Found<Message> found[2];
  for (int rtl = 0; rtl < 2; ++rtl) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAM(Edge, edges_in, 32);
    STREAM(Row, rows_in, 32);
    STREAM(Message, out, 8);
    Dataflow region;
    region.add("edges", -1, feed<Edge>, fed_edges, edges_in);
    region.add("rows", -1, feed<Row>, fed_rows, rows_in);
    if (rtl == 0) {
      region.add("scatter", -1, scatter<WeightedSum>, task, edges_in, rows_in, out);
    } else {
      region.add("scatter", -1, rtl::scatter, task, edges_in, rows_in, out);
    }
    region.add("drain", -1, drain<Message>, gaps, out, found[rtl]);
    region.run();
    (rtl == 0 ? comparison.csim_cycles : comparison.rtl_cycles) = simulation.now();
  }
  comparison.add(found[0], found[1]);
  comparison.print("scatter", task.mode == Mode::forward ? "forward" : "backward", seed);
}

void compare_array(unsigned seed) {
  Random random(seed);
  Task task = {};
  task.mode = static_cast<Mode>(seed % 3);
  task.slots = random.between(1, 2);
  task.words_in = random.between(1, 2);
  task.words_out = random.between(1, 12);
  task.num_rows = task.stage_rows = random.between(1, 80);
  const Blocks<D> blocks(task);
  const int words = blocks.parts * blocks.columns * blocks.rows;
  const int rights = blocks.transposes ? blocks.parts * blocks.steps * blocks.words
                                       : parts_of(task) * kLanes * task.words_out;
  int outs[D::kDrains] = {};
  const char* what = "forward";
  if (task.mode == Mode::forward) {
    for (int& each : outs) each = blocks.parts * blocks.rows * blocks.words / D::kDrainStep;
  } else if (task.mode == Mode::backward) {
    outs[0] = blocks.parts * blocks.rows * blocks.sets;
    what = "backward";
  } else {
    outs[0] = blocks.parts * blocks.turns * D::kSliceRows * blocks.words;
    what = "weights";
  }
  std::vector<Feed<Word>> lefts;
  for (int i = 0; i < D::kLefts; ++i) lefts.push_back(random.words(words / D::kLefts));
  const auto right = random.words(rights);
  std::vector<std::vector<int>> gaps;
  for (const int count : outs) gaps.push_back(random.gaps(count));
  Comparison comparison;
  Found<Word> found[2][D::kDrains];
  for (int rtl = 0; rtl < 2; ++rtl) {
    csim::Simulation simulation{csim::BankModel{}};
    const csim::Entered entered(simulation);
    STREAMS(Word, left_in, D::kLefts, 4);
    STREAMS(Word, right_in, D::kSlices, 4);
    STREAMS(Word, drained, D::kDrains, 2);
    Dataflow region;
    for (int i = 0; i < D::kLefts; ++i) {
      region.add("left", i, feed<Word>, lefts[static_cast<size_t>(i)], left_in[i]);
    }
    region.add("right", -1, feed<Word>, right, right_in[0]);
    if (rtl == 0) {
      region.add("multiply", -1, multiply<D>, task, left_in, right_in, drained);
    } else {
      region.add("multiply", -1, rtl::multiply<D>, task, left_in, right_in, drained);
    }
    for (int i = 0; i < D::kDrains; ++i) {
      region.add("drain", i, drain<Word>, gaps[static_cast<size_t>(i)], drained[i], found[rtl][i]);
    }
    region.run();
    (rtl == 0 ? comparison.csim_cycles : comparison.rtl_cycles) = simulation.now();
  }
  for (int i = 0; i < D::kDrains; ++i) comparison.add(found[0][i], found[1][i]);
  comparison.print("array", what, seed);
}

}  // namespace
}  // namespace gnnscale::fpga

int main(int num_arguments, char** arguments) {
  using namespace gnnscale::fpga;
  const unsigned seeds = num_arguments > 1 ? static_cast<unsigned>(std::stoi(arguments[1])) : 24;
  const std::string part = num_arguments > 2 ? arguments[2] : "all";
  for (unsigned seed = 0; seed < seeds; ++seed) {
    if (part == "all" || part == "scatter") compare_scatter(seed);
    if (part == "all" || part == "switch") compare_switch(seed);
    if (part == "all" || part == "gather") compare_gather(seed);
    if (part == "all" || part == "array") compare_array(seed);
  }
}
