// Tests of the aggregate engine: its sums, and its cycles on pipelines that can be counted by hand.
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "gnnscale_fpga/functions.hpp"
#include "kernels/gather.hpp"
#include "kernels/read.hpp"
#include "kernels/route.hpp"
#include "kernels/scatter.hpp"

namespace gnnscale::fpga {
namespace {

struct TestEdge {
  int source;
  int destination;
  float weight;
};

uint64_t entry(uint32_t destination, bool first, float weight) {
  return static_cast<uint64_t>(static_cast<uint32_t>(bits_of(weight))) << 32 |
         (first ? kFirstOfSource : 0U) | destination;
}

// Returns the edges of a block in the kernel's format: sorted by source, at least one entry for
// each source.
std::vector<Word> words_of_edges(const std::vector<TestEdge>& edges, int num_sources) {
  std::vector<uint64_t> entries;
  for (int source = 0; source < num_sources; ++source) {
    bool first = true;
    for (const TestEdge& edge : edges) {
      if (edge.source != source) continue;
      entries.push_back(entry(static_cast<uint32_t>(edge.destination), first, edge.weight));
      first = false;
    }
    if (first) entries.push_back(entry(kNoDestination, true, 0));
  }
  while (entries.size() % kEdgesPerWord != 0) entries.push_back(entry(kNoDestination, false, 0));
  std::vector<Word> words(entries.size() / kEdgesPerWord);
  std::memcpy(words.data(), entries.data(), entries.size() * sizeof(uint64_t));
  return words;
}

struct Outcome {
  std::vector<Word> sums;  // [passes][rows]
  int64_t cycles;
  int64_t feature_words, edge_words, hazards, conflicts, edges;
};

// Takes one row from each gather PE a cycle, in PE order.
template <class D>
void take_rows(int num_passes, int num_rows, Stream<Word> (&in)[D::kPes], Word* out) {
  for (int i = 0; i < num_passes * num_rows; i += D::kPes) {
    for (int pe = 0; pe < D::kPes; ++pe) out[i + pe] = in[pe].read();
    csim::Simulation::current().cycle();
  }
}

template <class D>
Outcome aggregate_list(const std::vector<Word>& list, const std::vector<Word>& features,
                       int num_sources, int num_rows, int passes) {
  constexpr int kStages = log2_of(D::kPes);
  Task task = {};
  task.mode = Mode::forward;
  task.passes = task.words_in = passes;
  task.incoming = task.num_sources = num_sources;
  task.source_scale = 1;
  task.sums = task.unclear = padded(num_rows) / D::kPes;
  task.edge_words = static_cast<int>(list.size());
  task.slots = 1;
  static HalfOfSums<D> first_sums[D::kPes], second_sums[D::kPes];
  Outcome outcome;
  outcome.sums.resize(static_cast<size_t>(passes * padded(num_rows)));
  csim::Simulation simulation{csim::BankModel{}};
  const csim::Entered entered(simulation);
  STREAMS(Edge, dealt, D::kPes, 32);
  STREAMS(Need, needs, D::kPes, 32);
  STREAMS(Word, stored, D::kBanks, 2);
  STREAM(Row, rows, 2);
  STREAM(Row, gradients, 2);
  STREAM(Word, own, 2);
  STREAMS(Row, duplicated, D::kPes, 4);
  STREAMS(Row, selected, D::kPes, 32);
  STREAM_STAGES(Message, messages, kStages + 1, D::kPes, 8);
  STREAMS(Word, gathered, D::kPes, 2);
  STREAMS(Word, sources, D::kBanks, 2);
  STREAMS(Word, returned, D::kBanks, 2);
  Dataflow region;
  region.add("read_edges", -1, read_edges<D>, task, Port(list.data(), Count::edge_words), dealt,
             needs);
  region.add("read_rows", -1, read_rows<D, Row>, task, Port(features.data(), Count::feature_words),
             stored, rows, own);
  region.add("duplicate", -1, duplicate<D, Row>, task, rows, gradients, duplicated);
  for (int pe = 0; pe < D::kPes; ++pe) {
    region.add("select", pe, select<Row>, task, needs[pe], duplicated[pe], selected[pe]);
    region.add("scatter", pe, scatter<WeightedSum>, task, dealt[pe], selected[pe], messages[0][pe]);
  }
  for (int i = 0; i < kStages; ++i) {
    region.add("route", i, route<D, Message>, task, 1 << i, messages[i], messages[i + 1]);
  }
  for (int pe = 0; pe < D::kPes; ++pe) {
    region.add("gather", pe, gather<D, WeightedSum>, task, first_sums[pe], second_sums[pe],
               messages[kStages][pe], sources[pe], sources[D::kPes + pe], gathered[pe],
               returned[pe], returned[D::kPes + pe]);
  }
  region.add("take_rows", -1, take_rows<D>, passes, padded(num_rows), gathered,
             outcome.sums.data());
  region.run();
  outcome.cycles = simulation.now();
  outcome.feature_words = simulation.counted(Count::feature_words);
  outcome.edge_words = simulation.counted(Count::edge_words);
  outcome.hazards = simulation.counted(Count::hazards);
  outcome.conflicts = simulation.counted(Count::routing_conflicts);
  outcome.edges = simulation.counted(Count::edges);
  return outcome;
}

template <class D>
Outcome aggregate(const std::vector<TestEdge>& edges, const std::vector<Word>& features,
                  int num_sources, int num_rows, int passes) {
  return aggregate_list<D>(words_of_edges(edges, num_sources), features, num_sources, num_rows,
                           passes);
}

std::vector<Word> numbered(int num_words) {
  std::vector<Word> words(static_cast<size_t>(num_words));
  for (int i = 0; i < num_words * kLanes; ++i) {
    words[static_cast<size_t>(i / kLanes)].lane[i % kLanes] = static_cast<float>(i % 97 - 48);
  }
  return words;
}

using One = Design<1, 16>;
using Two = Design<2, 32>;

std::vector<TestEdge> from_one_source(int num_edges, int stride) {
  std::vector<TestEdge> edges;
  for (int i = 0; i < num_edges; ++i) edges.push_back({0, i * stride, 1.0F});
  return edges;
}

// Common timeline of these tests, by the begin of each step. An iteration's writes are visible
// after the depth of its loop: 5 in read_edges, 6 in read_rows and scatter, 2 in duplicate, select
// and route, 12 in gather.
//    0  read_edges and read_rows request their first word, 64 cycles away
//   64  the word of edges arrives; n edges a cycle are dealt from now on
//   65  the first row arrives, one cycle later, since the bank moves a word a cycle
//   71  duplicate, 73 select, 75 scatter
//   81  the first message is visible
void one_edge() {
  // The 8 entries of a word are dealt one by one, 64 to 71, and the end of the pass at 72: scatter
  // takes it at 77, gather at 83. The sum updated at 81 can be read again at 92. From then on 16
  // rows leave, the last at 107; it is taken at 119.
  const Outcome outcome = aggregate<One>({{0, 0, 2.0F}}, numbered(1), 1, 1, 1);
  CHECK(outcome.cycles == 120);
  CHECK(outcome.edges == 1 && outcome.edge_words == 1 && outcome.feature_words == 1);
  CHECK(outcome.sums[0].lane[3] == 2 * (3.0F - 48));
}

void one_hub() {
  // 16 edges are two words, 64 to 67 and 68 to 71 at two edges a cycle, and the end at 72. Each PE
  // has 8 messages, 75 to 82, and the end at 83. They pass without conflicts: the switch at 81 to
  // 88, the end at 89; gather 83 to 90, the end at 91. 8 rows leave from 94 to 101, 11 cycles after
  // their last update; the last is taken at 113.
  const Outcome outcome = aggregate<Two>(from_one_source(16, 1), numbered(1), 1, 16, 1);
  CHECK(outcome.cycles == 114);
  CHECK(outcome.edges == 16 && outcome.edge_words == 2 && outcome.feature_words == 1);
  CHECK(outcome.hazards == 0 && outcome.conflicts == 0);
}

void perfect_matching() {
  // A row a cycle from 65 on; the second word of edges takes the bank at 68, so row i arrives at 66
  // + i from i = 3 on, and row 15 at 81. Its message is scattered at 91, the end at 92, which is at
  // the switch at 98, at gather at 100. 8 rows leave from 101 on, the last of which was updated at
  // 99: it leaves at 110 and is taken at 122.
  std::vector<TestEdge> edges;
  for (int i = 0; i < 16; ++i) edges.push_back({i, i, 1.0F});
  const Outcome outcome = aggregate<Two>(edges, numbered(16), 16, 16, 1);
  CHECK(outcome.cycles == 123);
  CHECK(outcome.edges == 16 && outcome.feature_words == 16);
  CHECK(outcome.hazards == 0 && outcome.conflicts == 0);
}

void all_edges_into_one_pe() {
  // 16 edges of one row, all to PE 0. Both scatter PEs have a message a cycle from 75 on, so two
  // messages want one side of the switch from 81 on: 16 messages leave from 81 to 96, and every
  // cycle but the last has two candidates. The end is at the switch at 97, at gather at 99. 16 rows
  // leave from 100 to 115; the last is taken at 127.
  const Outcome outcome = aggregate<Two>(from_one_source(16, 2), numbered(1), 1, 32, 1);
  CHECK(outcome.cycles == 128);
  CHECK(outcome.conflicts == 15);
}

void all_edges_into_one_row() {
  // 8 rows a cycle apart, their messages at gather from 81 on. A sum can be read again 11 cycles
  // later, so each next message waits 10 cycles: 81, 92, ... 158; the end at 159. 16 rows leave
  // from 169 to 184; the last is taken at 196.
  std::vector<TestEdge> edges;
  for (int i = 0; i < 8; ++i) edges.push_back({i, 0, 1.0F});
  const Outcome outcome = aggregate<One>(edges, numbered(8), 8, 1, 1);
  CHECK(outcome.cycles == 197);
  CHECK(outcome.hazards == 7 * 10);
}

void edges_are_read_once_if_they_fit() {
  // Three passes: the words of edges come from the chip in the second and third.
  const Outcome outcome = aggregate<Two>(from_one_source(16, 1), numbered(3), 1, 16, 3);
  CHECK(outcome.edge_words == 2 && outcome.feature_words == 3);
}

// Each source has an edge in the first lane, and the other lanes have null edges: their PEs get no
// edge, and must still release the rows.
template <class D>
void edges_in_one_lane_only() {
  constexpr int kSources = 300;
  std::vector<uint64_t> entries;
  for (int source = 0; source < kSources; ++source) {
    entries.push_back(entry(0, true, 1.0F));
    for (int pe = 1; pe < D::kPes; ++pe) entries.push_back(entry(kNoDestination, false, 0));
  }
  while (entries.size() % kEdgesPerWord != 0) entries.push_back(entry(kNoDestination, false, 0));
  std::vector<Word> list(entries.size() / kEdgesPerWord);
  std::memcpy(list.data(), entries.data(), entries.size() * sizeof(uint64_t));
  const std::vector<Word> features = numbered(2 * kSources);
  const Outcome outcome = aggregate_list<D>(list, features, kSources, 1, 2);
  CHECK(outcome.edges == 2 * kSources);
  float sum = 0;
  for (int source = 0; source < kSources; ++source) {
    sum += features[static_cast<size_t>(source)].lane[5];
  }
  CHECK(outcome.sums[0].lane[5] == sum);
}

// Sums of small whole numbers are exact in any order.
template <class D>
void equals_a_plain_sum(unsigned seed) {
  std::mt19937 random(seed);
  const int num_sources = 1 + static_cast<int>(random() % 60);
  const int num_rows = 1 + static_cast<int>(random() % 40);
  const int passes = 1 + static_cast<int>(random() % 3);
  std::vector<TestEdge> edges;
  for (unsigned i = random() % 300; i > 0; --i) {
    edges.push_back({static_cast<int>(random() % static_cast<unsigned>(num_sources)),
                     static_cast<int>(random() % static_cast<unsigned>(num_rows)),
                     static_cast<float>(random() % 5)});
  }
  const std::vector<Word> features = numbered(num_sources * passes);
  const Outcome outcome = aggregate<D>(edges, features, num_sources, num_rows, passes);
  std::vector<Word> expected(outcome.sums.size(), filled(0.0F));
  for (int pass = 0; pass < passes; ++pass) {
    for (const TestEdge& edge : edges) {
      for (int i = 0; i < kLanes; ++i) {
        expected[static_cast<size_t>(pass * padded(num_rows) + edge.destination)].lane[i] +=
            edge.weight * features[static_cast<size_t>(pass * num_sources + edge.source)].lane[i];
      }
    }
  }
  CHECK(std::memcmp(expected.data(), outcome.sums.data(), expected.size() * sizeof(Word)) == 0);
  CHECK(outcome.edges == static_cast<int64_t>(edges.size()) * passes);
  CHECK(outcome.feature_words == static_cast<int64_t>(num_sources) * passes);
}

template <class D>
void equals_plain_sums() {
  for (unsigned seed = 0; seed < 20; ++seed) equals_a_plain_sum<D>(seed);
}

}  // namespace
}  // namespace gnnscale::fpga

int main() {
  using namespace gnnscale::fpga;
  one_edge();
  one_hub();
  perfect_matching();
  all_edges_into_one_pe();
  all_edges_into_one_row();
  edges_are_read_once_if_they_fit();
  edges_in_one_lane_only<Design<2, 32>>();
  edges_in_one_lane_only<Design<4, 64>>();
  edges_in_one_lane_only<Design<16, 256>>();
  equals_plain_sums<Design<1, 16>>();
  equals_plain_sums<Design<2, 32>>();
  equals_plain_sums<Design<4, 64>>();
  equals_plain_sums<Design<8, 128>>();
  equals_plain_sums<Design<16, 256>>();
  return check_result();
}
