// Tests of sampling as of cut-offs against a plain sampler, and on damaged times.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "check.hpp"
#include "gnnscale/random.hpp"
#include "gnnscale/sampler.hpp"

using namespace gnnscale;

namespace {

constexpr uint64_t kSeed = 3, kStep = 8;
constexpr int64_t kNumVertices = 3000, kNumTimes = 500;

// Lists of up to 60 neighbors, some of 3000, sorted by time; lists of the last 500 vertices have no
// times.
template <typename Vertex>
struct Lists {
  std::vector<int64_t> indptr = {0};
  std::vector<Vertex> indices;
  std::vector<int64_t> times;

  Lists() {
    for (uint64_t v = 0; v < kNumVertices; ++v) {
      const uint64_t degree = v % 400 == 7 ? 3000 : below(draw(1, v), 61);
      std::vector<std::pair<int64_t, Vertex>> entries;
      for (uint64_t i = 0; i < degree; ++i) {
        const auto u = static_cast<Vertex>(below(draw(combine(2, v), i), kNumVertices));
        const auto time = static_cast<int64_t>(below(draw(combine(3, v), i), kNumTimes));
        entries.emplace_back(v < kNumVertices - 500 ? time : kNoTime, u);
      }
      std::sort(entries.begin(), entries.end());
      for (const auto& [time, u] : entries) {
        times.push_back(time);
        indices.push_back(u);
      }
      indptr.push_back(std::ssize(indices));
    }
  }

  Topology<Vertex> topology() const {
    return {kNumVertices, std::ssize(indices), indptr.data(), indices.data()};
  }
};

using Unit = std::tuple<int64_t, int64_t, int64_t, int32_t>;  // vertex, cut-off, since, tree

bool allows(const TimeRule& rule, const Unit& unit, int64_t time) {
  const auto [v, cutoff, since, tree] = unit;
  if (time == kNoTime) return true;
  if (rule.strict ? time >= cutoff : time > cutoff) return false;
  if (rule.window > 0 && (rule.strict ? time < cutoff - rule.window : time <= cutoff - rule.window))
    return false;
  return since == kNoTime || (rule.strict ? time > since : time >= since);
}

// Ids of the units, and the edges of all hops that take every allowed neighbor.
template <typename Vertex>
struct Plain {
  std::vector<Unit> units;
  std::map<Unit, int32_t> ids;
  std::vector<std::vector<int32_t>> indices;
  std::vector<std::vector<int64_t>> indptrs;

  int32_t id_of(const Unit& unit) {
    const auto [entry, is_new] = ids.try_emplace(unit, static_cast<int32_t>(units.size()));
    if (is_new) units.push_back(unit);
    return entry->second;
  }

  void expand(const Lists<Vertex>& lists, const TimeRule& rule) {
    indices.emplace_back();
    indptrs.push_back({0});
    for (size_t dst = 0, size = units.size(); dst < size; ++dst) {
      const auto [v, cutoff, since, tree] = units[dst];
      for (int64_t i = lists.indptr[v]; i < lists.indptr[v + 1]; ++i) {
        const int64_t time = lists.times[i];
        if (!allows(rule, units[dst], time)) continue;
        Unit source{lists.indices[i], cutoff, since, tree};
        if (time != kNoTime && rule.handed == Handed::edge_time) std::get<1>(source) = time;
        if (time != kNoTime && rule.handed == Handed::since) std::get<2>(source) = time;
        if (rule.handed == Handed::none) std::get<1>(source) = kNoTime;
        indices.back().push_back(id_of(source));
      }
      indptrs.back().push_back(std::ssize(indices.back()));
    }
  }
};

template <typename T, typename Expected>
bool equal(const Array<T>& array, const Expected& expected) {
  return std::equal(array.data.get(), array.data.get() + array.size, expected.begin(),
                    expected.end());
}

std::vector<TimeRule> rules(const int64_t* times) {
  std::vector<TimeRule> all;
  for (const Handed handed : {Handed::cutoff, Handed::edge_time, Handed::since}) {
    for (const bool strict : {false, true}) {
      for (const int64_t window : {0, 60}) {
        for (const bool disjoint : {false, true}) {
          all.push_back({.times = times,
                         .handed = handed,
                         .strict = strict,
                         .window = window,
                         .disjoint = disjoint});
        }
      }
    }
  }
  return all;
}

// Every rule with full fan-outs, on several threads: ids do not depend on their number.
template <typename Vertex>
void test_allowed_edges(bool has_one_cutoff) {
  const Lists<Vertex> lists;
  std::vector<int64_t> seeds, cutoffs;
  for (int64_t v = 0; v < kNumVertices; v += 60) {
    seeds.push_back(v);
    cutoffs.push_back(has_one_cutoff ? 90 : static_cast<int64_t>(below(draw(4, v), kNumTimes)));
  }
  const auto index_of = [&](bool has_codes) {
    return TimeIndex(lists.times.data(), lists.indptr.data(), std::ssize(lists.times),
                     GraphTypes::homogeneous(kNumVertices), has_codes, 2);
  };
  const TimeIndex coded = index_of(true), estimated = index_of(false);
  for (TimeRule rule : rules(lists.times.data())) {
    Plain<Vertex> plain;
    for (size_t i = 0; i < seeds.size(); ++i) {
      plain.id_of({seeds[i], cutoffs[i], kNoTime, rule.disjoint ? static_cast<int32_t>(i) : 0});
    }
    for (int hop = 0; hop < 2; ++hop) plain.expand(lists, rule);
    Sampler<Vertex> sampler(lists.topology());
    for (const int threads : {1, 2, 3, 8}) {
      rule.index = threads == 2 ? nullptr : threads == 3 ? &estimated : &coded;
      const EdgeOptions ask{.time = &rule};
      const auto batch =
          sampler.sample_neighbors({seeds.data(), true, std::ssize(seeds), cutoffs.data()},
                                   {-1, -1}, false, kSeed, kStep, threads, false, ask);
      for (size_t hop = 0; hop < 2; ++hop) {
        CHECK(equal(batch.blocks[hop].indptr, plain.indptrs[hop]));
        CHECK(equal(batch.blocks[hop].indices, plain.indices[hop]));
      }
      CHECK(batch.input_vertices.size == std::ssize(plain.units));
      for (int64_t id = 0; id < batch.input_vertices.size; ++id) {
        const auto [v, cutoff, since, tree] = plain.units[id];
        CHECK(batch.input_vertices.data[id] == v && batch.cutoffs.data[id] == cutoff);
        CHECK(!rule.disjoint || batch.trees.data[id] == tree);
      }
    }
  }
}

// A last hop, whose sources are vertices; and the last edges that it allows.
template <typename Vertex>
void test_last_hop() {
  const Lists<Vertex> lists;
  std::vector<int64_t> seeds, cutoffs;
  for (int64_t v = 0; v < kNumVertices; v += 20) {
    seeds.insert(seeds.end(), {v, v});
    cutoffs.insert(cutoffs.end(), {static_cast<int64_t>(below(draw(7, v), kNumTimes)), kNumTimes});
  }
  const TimeIndex index(lists.times.data(), lists.indptr.data(), std::ssize(lists.times),
                        GraphTypes::homogeneous(kNumVertices), true, 2);
  const Seeds units{seeds.data(), true, std::ssize(seeds), cutoffs.data()};
  Sampler<Vertex> sampler(lists.topology());
  for (const bool strict : {false, true}) {
    const TimeRule rule{
        .times = lists.times.data(), .handed = Handed::none, .strict = strict, .index = &index};
    Plain<Vertex> plain;
    for (size_t i = 0; i < seeds.size(); ++i) plain.id_of({seeds[i], cutoffs[i], kNoTime, 0});
    plain.expand(lists, rule);
    const EdgeOptions ask{.time = &rule};
    for (const int threads : {1, 3}) {
      const auto batch =
          sampler.sample_neighbors(units, {-1}, false, kSeed, kStep, threads, false, ask);
      CHECK(equal(batch.blocks[0].indptr, plain.indptrs[0]));
      CHECK(equal(batch.blocks[0].indices, plain.indices[0]));
      const auto found = sampler.last_times(units, 0, rule, threads);
      for (int64_t i = 0; i < units.size; ++i) {
        int64_t last = kNoTime;
        for (int64_t e = lists.indptr[seeds[i]]; e < lists.indptr[seeds[i] + 1]; ++e) {
          const Unit unit{seeds[i], cutoffs[i], kNoTime, 0};
          if (allows(rule, unit, lists.times[e])) last = std::max(last, lists.times[e]);
        }
        CHECK(found.data[i] == last);
      }
    }
  }
}

// Times in any order and of any value: every read is within the lists, and so is every edge.
template <typename Vertex>
void test_damaged_times() {
  Lists<Vertex> lists;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> values{kNoTime, kNoTime + 1, -1, 0, 250, kMax - 1, kMax};
  for (size_t i = 0; i < lists.times.size(); ++i) {
    lists.times[i] = values[below(draw(5, i), values.size())];
  }
  std::vector<int64_t> seeds, cutoffs;
  for (int64_t v = 0; v < kNumVertices; v += 30) {
    seeds.push_back(v);
    cutoffs.push_back(values[1 + below(draw(6, v), values.size() - 1)]);
  }
  Sampler<Vertex> sampler(lists.topology());
  const TimeIndex index(lists.times.data(), lists.indptr.data(), std::ssize(lists.times),
                        GraphTypes::homogeneous(kNumVertices), true, 2);
  for (TimeRule rule : rules(lists.times.data())) {
    rule.index = rule.strict ? &index : nullptr;
    const EdgeOptions ask{.positions = true, .time = &rule};
    const auto batch =
        sampler.sample_neighbors({seeds.data(), true, std::ssize(seeds), cutoffs.data()}, {5, 3},
                                 false, kSeed, kStep, 2, false, ask);
    for (const BlockArrays& block : batch.blocks) {
      for (int64_t dst = 0; dst + 1 < block.indptr.size; ++dst) {
        const Vertex v = batch.input_vertices.data[dst];
        for (int64_t e = block.indptr.data[dst]; e < block.indptr.data[dst + 1]; ++e) {
          const int64_t position = block.positions.data[e];
          CHECK(lists.indptr[v] <= position && position < lists.indptr[v + 1]);
        }
      }
    }
  }
}

void test_repeated_units() {
  const Lists<int32_t> lists;
  const std::vector<int64_t> seeds{4, 4}, equal_cutoffs{9, 9}, cutoffs{9, 8};
  TimeRule rule{.times = lists.times.data()};
  const EdgeOptions ask{.time = &rule};
  Sampler<int32_t> sampler(lists.topology());
  const auto sample = [&](const std::vector<int64_t>& as_of) {
    return sampler.sample_neighbors({seeds.data(), true, 2, as_of.data()}, {3}, false, kSeed, kStep,
                                    1, false, ask);
  };
  CHECK_THROWS(sample(equal_cutoffs), std::invalid_argument);
  CHECK(sample(cutoffs).type_sizes[0][0] == 2);
  rule.disjoint = true;
  CHECK(sample(equal_cutoffs).type_sizes[0][0] == 2);
}

// Stamps wrap around after many batches, and tables grow in between.
void test_unit_map() {
  UnitMap<int64_t> map;
  std::vector<int64_t> vertices(5000);
  for (int round = 0; round < 50; ++round) {
    map.start(round % 2 == 1, round % 3 == 1);
    for (int64_t id = 0; id < 5000; ++id) {
      if (id % 1000 == 0) map.reserve(1000, vertices.data());
      const AsOf bounds{id % 7, round % 2 == 1 ? id % 3 : kNoTime,
                        round % 3 == 1 ? static_cast<int32_t>(id % 5) : 0};
      const uint64_t hash = UnitMap<int64_t>::hash(id, bounds.hash());
      CHECK(map.insert(hash, id, bounds, vertices.data()) == id);
      CHECK(map.insert(hash, id, bounds, vertices.data()) == id);
      CHECK(map.as_of(id).cutoff == bounds.cutoff && map.size() == id + 1);
    }
  }
}

// Groups whose tables grow from reserve to reserve, in any order of inserts.
template <typename Vertex>
void test_unit_groups() {
  constexpr int64_t kGroups = 20;
  UnitGroups<Vertex> groups;
  std::vector<Vertex> vertices(20000);
  for (uint64_t batch = 0; batch < 20; ++batch) {
    groups.start(kGroups);
    std::map<std::pair<int32_t, Vertex>, int32_t> expected;
    for (uint64_t hop = 0; hop < 4; ++hop) {
      std::vector<std::pair<int32_t, Vertex>> units;
      std::vector<int64_t> num_more(kGroups);
      for (uint64_t i = 0; i < 1 + 1000 * hop; ++i) {
        const uint64_t word = draw(combine(combine(8, batch), hop), i);
        // Groups of every size; group 3 has none.
        const auto group = static_cast<int32_t>(word % 7 == 0 ? below(word, kGroups) : word % 3);
        if (group == 3) continue;
        units.emplace_back(group, static_cast<Vertex>(word % 999));
        ++num_more[group];
      }
      groups.reserve(num_more, vertices.data());
      for (const auto& [group, vertex] : units) {
        const int64_t slot = groups.slot(group, vertex);
        int32_t id;
        groups.insert(group, &vertex, &slot, 1, vertices.data(), &id);
        const auto size = static_cast<int32_t>(expected.size());
        CHECK(expected.try_emplace({group, vertex}, size).first->second == id);
        CHECK(vertices[id] == vertex && groups.groups()[id] == group);
      }
      CHECK(groups.size() == std::ssize(expected));
    }
  }
}

}  // namespace

int main() {
  test_allowed_edges<int32_t>(false);
  test_allowed_edges<int64_t>(false);
  test_allowed_edges<int32_t>(true);
  test_last_hop<int32_t>();
  test_last_hop<int64_t>();
  test_damaged_times<int32_t>();
  test_damaged_times<int64_t>();
  test_repeated_units();
  test_unit_map();
  test_unit_groups<int32_t>();
  test_unit_groups<int64_t>();
  return check_result();
}
