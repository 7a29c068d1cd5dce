#include "gnnscale/fpga_edge_order.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <vector>

#include "gnnscale/limits.hpp"

namespace gnnscale {
namespace {

int64_t round_up(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

uint64_t edge_of(float weight, int64_t destination) {
  return uint64_t{std::bit_cast<uint32_t>(weight)} << 32 | static_cast<uint64_t>(destination);
}

// Counting sort of a tile's entries by row: call `count` for every entry, then `lay_out`, then
// `put` for every entry again.
class Cursors {
 public:
  explicit Cursors(int64_t num_rows) : next_(num_rows) {}

  void clear() { std::fill_n(next_.data.get(), next_.size, 0); }
  void count(int64_t row) { ++next_.data[row]; }

  // Assigns every row its range in `edges`, at least one entry, filled with null edges. Returns the
  // number of words.
  int64_t lay_out(uint64_t* edges) {
    uint32_t entry = 0;
    for (int64_t row = 0; row < next_.size; ++row) {
      const uint32_t count = next_.data[row];
      next_.data[row] = entry | kFirst;
      edges[entry] = kNullEdge | kFirstEntry;
      entry += std::max(count, 1U);
    }
    while (entry % kWordEdges != 0) edges[entry++] = kNullEdge;
    return entry / kWordEdges;
  }

  void put(int64_t row, uint64_t edge, uint64_t* edges) {
    const uint32_t next = next_.data[row];
    edges[next & ~kFirst] = edge | (next & kFirst);
    next_.data[row] = (next & ~kFirst) + 1;
  }

 private:
  static constexpr uint32_t kFirst = static_cast<uint32_t>(kFirstEntry);
  Array<uint32_t> next_;
};

// Maximum number of padding null edges in a list of `num_entries` entries with several banks.
int64_t max_left_out(int64_t num_entries) { return num_entries / 4; }

// The edges of a source grouped by target bank, in their order.
class Buckets {
 public:
  explicit Buckets(int64_t num_banks) : first_(num_banks), last_(num_banks), sizes_(num_banks) {}

  void fill(const uint64_t* edges, int64_t num_edges) {
    edges_ = edges;
    num_left_ = num_edges;
    next_.resize(std::max(next_.size(), static_cast<size_t>(num_edges)));
    for (int64_t i = 0; i < num_edges; ++i) {
      const auto bank = static_cast<size_t>(edges[i] & kNullEdge) % sizes_.size();
      (sizes_[bank]++ == 0 ? first_[bank] : next_[last_[bank]]) = i;
      last_[bank] = i;
    }
  }
  bool empty() const { return num_left_ == 0; }
  int64_t size(int64_t bank) const { return sizes_[bank]; }
  int64_t fullest() const {
    return std::max_element(sizes_.begin(), sizes_.end()) - sizes_.begin();
  }
  uint64_t take(int64_t bank) {
    const int64_t edge = first_[bank];
    first_[bank] = next_[edge];
    --sizes_[bank];
    --num_left_;
    return edges_[edge];
  }

 private:
  const uint64_t* edges_ = nullptr;
  int64_t num_left_ = 0;
  std::vector<int64_t> first_, last_, sizes_, next_;
};

// Deals entries to lanes, entry i to lane i modulo the number of lanes. Among a source's edges, it
// prefers one whose bank equals its lane, which causes no conflict in the routing network. If edges
// are the bottleneck rather than rows, a lane whose bank has no edge gets a null edge.
class Dealer {
 public:
  Dealer(int64_t num_banks, int64_t num_entries, int64_t num_sources)
      : num_banks_(num_banks), buckets_(num_banks) {
    // Lanes that are mostly idle can absorb routing conflicts.
    const bool busy = 2 * num_entries > num_banks * num_sources;
    left_out_ = busy ? max_left_out(num_entries) : 0;
  }

  int64_t num_dealt() const { return num_dealt_; }

  // Calls append(edge) for the dealt edges of the next source.
  template <typename Append>
  void deal(const uint64_t* edges, int64_t num_edges, Append&& append) {
    const auto next = [&](uint64_t edge) {
      append(edge);
      ++num_dealt_;
    };
    if (num_edges == 0) next(kNullEdge);
    buckets_.fill(edges, num_edges);
    while (!buckets_.empty()) {
      const int64_t bank = num_dealt_ % num_banks_;
      if (buckets_.size(bank) > 0) {
        next(buckets_.take(bank));
      } else if (left_out_ > 0 && num_dealt_ < num_banks_ * source_) {
        next(kNullEdge);
        --left_out_;
      } else {
        next(buckets_.take(buckets_.fullest()));
      }
    }
    ++source_;
  }

 private:
  int64_t num_banks_, left_out_ = 0;
  Buckets buckets_;
  int64_t num_dealt_ = 0, source_ = 0;
};

// The edge lists of all tiles, concatenated.
class Tiles {
 public:
  // Allocates `num_entries` entries, one extra for each source of each tile, and padding of words.
  Tiles(int64_t num_rows, int64_t tile_rows, int64_t num_sources, int64_t num_entries,
        bool several_banks)
      : num_rows_(num_rows), tile_rows_(tile_rows) {
    const int64_t num_tiles = num_rows / tile_rows + (num_rows % tile_rows != 0);
    const int64_t entries = num_entries + num_tiles * num_sources;
    lists_.edges = Array<uint64_t>(entries + (several_banks ? max_left_out(entries) : 0) +
                                   num_tiles * kWordEdges);
    lists_.tiles = Array<int64_t>(num_tiles * 3);
  }

  // Calls fill(first row, end, edges) for each tile; `fill` returns the number of words.
  template <typename Fill>
  EdgeTiles make(Fill&& fill) {
    int64_t words = 0;
    int64_t* tile = lists_.tiles.data.get();
    for (int64_t first = 0; first < num_rows_; first += tile_rows_, tile += 3) {
      const int64_t end = std::min(first + tile_rows_, num_rows_);
      tile[0] = words;
      tile[1] = fill(first, end, lists_.edges.data.get() + words * kWordEdges);
      tile[2] = end - first;
      words += tile[1];
    }
    lists_.edges.size = words * kWordEdges;
    return std::move(lists_);
  }

 private:
  int64_t num_rows_, tile_rows_;
  EdgeTiles lists_;
};

class Arranger {
 public:
  explicit Arranger(const Arrange& task)
      : task_(task),
        num_destinations_(task.num_destinations),
        has_own_rows_(task.own_row != OwnRow::none),
        neighbor_slot_(task.own_row == OwnRow::concat ? 1 : 0),
        position_(task.num_src) {}

  Arranged run() {
    Arranged result;
    result.sources = order_sources();
    if (task_.num_banks > 1) level(result.sources);
    num_sources_ = result.sources.size;
    check_sizes();
    result.forward = forward();
    if (task_.backward_tile_rows != 0) result.backward = backward(result.forward);
    return result;
  }

 private:
  // Order of sources: first the destinations, in the row order that the next layer expects. Then
  // the neighbors in rounds, one neighbor of each destination a round, with the first destination
  // of a round moved back by one. Successive sources then lead to different destinations, and the
  // edges of one destination come from sources far apart. Thus neither forward nor backward hits
  // one of the kernel's adders twice in a row, which would stall it until its sum is ready.
  Array<int32_t> order_sources() {
    std::fill_n(position_.data.get(), position_.size, -1);
    Lists lists = place_destinations();
    // One extra entry as a write target for sources that are already present.
    Array<int32_t> sources(std::min(task_.num_src, num_destinations_ + num_edges_) + 1);
    std::copy_n(task_.destinations, num_destinations_, sources.data.get());
    int64_t next = num_destinations_;
    const auto append = [&](const int32_t* neighbor) {
      const int32_t u = *neighbor;
      const int32_t old_position = position_.data[u];
      // The test is unpredictable, so there is no branch.
      const int32_t absent = old_position >> 31;
      sources.data[next] = u;
      position_.data[u] = (old_position & ~absent) | (static_cast<int32_t>(next) & absent);
      next -= absent;
    };
    int64_t shortest = lists.drop_ended(0);
    for (int64_t j = 0; !lists.places.empty(); ++j) {
      const int64_t begins = (num_destinations_ - j % num_destinations_) % num_destinations_;
      const auto& places = lists.places;
      const auto begin = std::lower_bound(places.begin(), places.end(), begins) - places.begin();
      const auto size = static_cast<int64_t>(places.size());
      for (int64_t i = begin; i < size; ++i) append(lists.neighbors[i] + j);
      for (int64_t i = 0; i < begin; ++i) append(lists.neighbors[i] + j);
      if (shortest == j + 1) shortest = lists.drop_ended(j + 1);
    }
    sources.size = next;
    return sources;
  }

  // Balances edges along the row order, since the kernel stalls on edges where edges are dense and
  // on rows where they are sparse: sources with several edges are spread evenly over the order,
  // keeping their sequence. Among sources with one edge, the next one is chosen whose edge leads to
  // the bank of its lane. Destinations stay first if their own rows are read by position.
  void level(Array<int32_t>& sources) {
    const int64_t stay = task_.own_row == OwnRow::concat ? num_destinations_ : 0;
    const int64_t count = sources.size - stay;
    // The edges of each source, by the source's current position.
    std::vector<int64_t> offsets(sources.size + 1);
    for_edges(0, num_destinations_, [&](int64_t p, int64_t, int64_t, float) { ++offsets[p + 1]; });
    int64_t num_entries = 0, total = 0;
    for (int64_t p = 0; p < sources.size; ++p) {
      num_entries += std::max<int64_t>(offsets[p + 1], 1);
      total += p < stay ? 0 : offsets[p + 1];
      offsets[p + 1] += offsets[p];
    }
    std::vector<uint64_t> ends(offsets.back());
    std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
    for_edges(0, num_destinations_, [&](int64_t p, int64_t slot, int64_t v, float) {
      ends[next[p]++] = slot * slot_stride(num_destinations_) + v;
    });
    const auto degree = [&](int64_t p) { return offsets[p + 1] - offsets[p]; };
    Dealer dealer(task_.num_banks, num_entries, sources.size);
    const auto deal = [&](int64_t p) {
      dealer.deal(ends.data() + offsets[p], degree(p), [](uint64_t) {});
    };
    for (int64_t p = 0; p < stay; ++p) deal(p);

    std::vector<int64_t> many;
    // Sources by the bank of their edge; sources without an edge, which fit any lane, come last.
    std::vector<std::vector<int64_t>> one(task_.num_banks + 1);
    for (int64_t p = stay; p < sources.size; ++p) {
      const int64_t bank = degree(p) == 0
                               ? task_.num_banks
                               : static_cast<int64_t>(ends[offsets[p]]) % task_.num_banks;
      (degree(p) > 1 ? many : one[bank]).push_back(p);
    }
    const std::vector<int32_t> old_order(sources.data.get(), sources.data.get() + sources.size);
    std::vector<size_t> num_taken(one.size());
    const auto remaining = [&](int64_t bank) { return one[bank].size() - num_taken[bank]; };
    size_t taken_many = 0, ones = count - many.size();
    int64_t edges = 0;
    for (int64_t position = 0; position < count; ++position) {
      int64_t chosen = 0;
      if (ones == 0 || (taken_many < many.size() && edges * count <= total * position)) {
        chosen = many[taken_many++];
      } else {
        int64_t bank = dealer.num_dealt() % task_.num_banks;
        for (int64_t other = task_.num_banks; remaining(bank) == 0; --other) bank = other;
        chosen = one[bank][num_taken[bank]++];
        --ones;
      }
      deal(chosen);
      edges += std::max<int64_t>(degree(chosen), 1);  // a source without edges also has an entry
      sources.data[stay + position] = old_order[chosen];
      position_.data[old_order[chosen]] = static_cast<int32_t>(stay + position);
    }
  }

  // Deals the edges of each source to the kernel's lanes. Returns the number of words.
  int64_t spread(uint64_t* edges, int64_t num_edges, int64_t num_rows) const {
    while (num_edges > 0 && edges[num_edges - 1] == kNullEdge) --num_edges;  // padding of words
    const std::vector<uint64_t> lists(edges, edges + num_edges);
    Dealer dealer(task_.num_banks, num_edges, num_rows);
    int64_t entry = 0;
    for (int64_t begin = 0, end = 0; begin < num_edges; begin = end) {
      end = begin + 1;
      while (end < num_edges && (lists[end] & kFirstEntry) == 0) ++end;
      const bool none = (lists[begin] & kNullEdge) == kNullEdge;
      const int64_t first = entry;
      dealer.deal(lists.data() + begin, none ? 0 : end - begin,
                  [&](uint64_t edge) { edges[entry++] = edge & ~kFirstEntry; });
      edges[first] |= kFirstEntry;
    }
    while (entry % kWordEdges != 0) edges[entry++] = kNullEdge;
    return entry / kWordEdges;
  }

  // The adjacency lists of destinations that have not been exhausted.
  struct Lists {
    std::vector<const int32_t*> neighbors;
    std::vector<int64_t> degrees;
    std::vector<int64_t> places;  // destination positions, ascending

    // Keeps the lists with more than `num_seen` neighbors; returns the length of the shortest one.
    // All calls cost at most the number of edges and destinations in total.
    int64_t drop_ended(int64_t num_seen) {
      int64_t shortest = INT64_MAX;
      size_t num_kept = 0;
      for (size_t i = 0; i < places.size(); ++i) {
        if (degrees[i] <= num_seen) continue;
        shortest = std::min(shortest, degrees[i]);
        neighbors[num_kept] = neighbors[i];
        degrees[num_kept] = degrees[i];
        places[num_kept++] = places[i];
      }
      neighbors.resize(num_kept);
      degrees.resize(num_kept);
      places.resize(num_kept);
      return shortest;
    }
  };

  // Returns the lists of all destinations.
  Lists place_destinations() {
    Lists lists;
    for (int64_t v = 0; v < num_destinations_; ++v) {
      const int32_t dst = task_.destinations[v];
      if (position_.data[dst] >= 0) [[unlikely]] {
        throw std::invalid_argument("destinations: " + std::to_string(dst) + " at place " +
                                    std::to_string(v) + " was there before, allowed are " +
                                    "distinct ones");
      }
      position_.data[dst] = static_cast<int32_t>(v);
      const int64_t degree = task_.indptr[dst + 1] - task_.indptr[dst];
      lists.neighbors.push_back(task_.indices + task_.indptr[dst]);
      lists.degrees.push_back(degree);
      lists.places.push_back(v);
      num_edges_ += degree;
    }
    return lists;
  }

  int64_t num_entries() const { return num_edges_ + (has_own_rows_ ? num_destinations_ : 0); }
  int64_t num_rows() const { return num_destinations_ * (1 + neighbor_slot_); }
  // Returns the number of buffer rows from one slot of a tile to the next.
  static int64_t slot_stride(int64_t rows) { return round_up(rows, kWordColumns); }

  void check_sizes() const {
    const int64_t entries = num_entries() + std::max(num_sources_, num_rows());
    const int64_t max_place = entries + max_left_out(entries) + kWordEdges;
    const int64_t stride = slot_stride(std::min(task_.tile_rows, num_destinations_));
    if (max_place <= kMaxLocal &&
        stride * (1 + neighbor_slot_) <= static_cast<int64_t>(kNullEdge)) {
      return;
    }
    throw std::invalid_argument("indices: " + std::to_string(num_edges_) + " edges of " +
                                std::to_string(num_destinations_) +
                                " destinations, allowed are such that places have 31 bits");
  }

  // Calls use(source, slot, v, weight) for every edge of the destinations from `first` to `end`.
  template <typename Use>
  void for_edges(int64_t first, int64_t end, Use&& use) const {
    for (int64_t v = first; v < end; ++v) {
      const int32_t dst = task_.destinations[v];
      if (has_own_rows_) {
        const bool scaled = task_.own_row == OwnRow::add && task_.self_scale != nullptr;
        use(position_.data[dst], 0, v, scaled ? task_.self_scale[dst] : 1.0F);
      }
      const float scale = task_.dst_scale != nullptr ? task_.dst_scale[dst] : 1.0F;
      for (int64_t edge = task_.indptr[dst]; edge < task_.indptr[dst + 1]; ++edge) {
        const float weight =
            task_.weights != nullptr ? task_.weights[edge * task_.weight_stride] * scale : scale;
        use(position_.data[task_.indices[edge]], neighbor_slot_, v, weight);
      }
    }
  }

  EdgeTiles forward() const {
    Cursors cursors(num_sources_);
    Tiles tiles(num_destinations_, task_.tile_rows, num_sources_, num_entries(),
                task_.num_banks > 1);
    return tiles.make([&](int64_t first, int64_t end, uint64_t* edges) {
      const int64_t stride = slot_stride(end - first);
      cursors.clear();
      for_edges(first, end, [&](int64_t p, int64_t, int64_t, float) { cursors.count(p); });
      const int64_t words = cursors.lay_out(edges);
      for_edges(first, end, [&](int64_t p, int64_t slot, int64_t v, float weight) {
        cursors.put(p, edge_of(weight, slot * stride + v - first), edges);
      });
      return task_.num_banks > 1 ? spread(edges, words * kWordEdges, num_sources_) : words;
    });
  }

  // Read cursor of the transpose in a tile of the forward lists.
  struct Reader {
    const uint64_t* edge;
    const uint64_t* end;
    int64_t source;  // of the previous edge
    int64_t first;   // first destination of the tile
    int64_t stride;

    // Calls use(row, source, edge) for the non-null edges of sources before `end_source`, in source
    // order; rows are numbered slot by slot.
    template <typename Use>
    void read(int64_t end_source, int64_t num_destinations, Use&& use) {
      const Reader from = *this;  // a copy, which writes through `use` cannot alias
      const int64_t second_slot = num_destinations - from.stride;
      const uint64_t* next = from.edge;
      int64_t p = from.source;
      for (; next != from.end; ++next) {
        // The first-edge flag is unpredictable: added instead of branched on.
        p += static_cast<int64_t>(*next >> 31 & 1);
        if (p == end_source) {
          --p;  // read again by the next call
          break;
        }
        const auto index = static_cast<int64_t>(*next & kNullEdge);
        if (index == static_cast<int64_t>(kNullEdge)) continue;
        use(from.first + index + (index >= from.stride ? second_slot : 0), p, *next);
      }
      edge = next;
      source = p;
    }
  };

  std::vector<Reader> readers(const EdgeTiles& forward) const {
    std::vector<Reader> tile_readers;
    int64_t first = 0;
    for (int64_t k = 0; k < forward.tiles.size; k += 3) {
      const int64_t* tile = forward.tiles.data.get() + k;
      const uint64_t* edges = forward.edges.data.get() + tile[0] * kWordEdges;
      tile_readers.push_back(
          {edges, edges + tile[1] * kWordEdges, -1, first, slot_stride(tile[2])});
      first += tile[2];
    }
    return tile_readers;
  }

  // The edges of a destination are in one tile of the forward lists, sorted by source: reading the
  // tile in order gives sorted entries for the transpose, too.
  EdgeTiles backward(const EdgeTiles& forward) const {
    Cursors cursors(num_rows());
    Tiles tiles(num_sources_, task_.backward_tile_rows, num_rows(), num_entries(),
                task_.num_banks > 1);
    std::vector<Reader> counted = readers(forward), written = counted;
    return tiles.make([&](int64_t first, int64_t end, uint64_t* edges) {
      cursors.clear();
      for (Reader& reader : counted) {
        reader.read(end, num_destinations_,
                    [&](int64_t row, int64_t, uint64_t) { cursors.count(row); });
      }
      const int64_t words = cursors.lay_out(edges);
      for (Reader& reader : written) {
        reader.read(end, num_destinations_, [&](int64_t row, int64_t source, uint64_t edge) {
          const uint64_t weight = edge >> 32 << 32;
          cursors.put(row, weight | static_cast<uint64_t>(source - first), edges);
        });
      }
      return task_.num_banks > 1 ? spread(edges, words * kWordEdges, num_rows()) : words;
    });
  }

  const Arrange& task_;
  const int64_t num_destinations_;
  const bool has_own_rows_;
  const int64_t neighbor_slot_;
  int64_t num_edges_ = 0;
  int64_t num_sources_ = 0;
  Array<int32_t> position_;  // [num_src] position of each source, -1 for none
};

}  // namespace

Arranged arrange_block(const Arrange& task) { return Arranger(task).run(); }

}  // namespace gnnscale
