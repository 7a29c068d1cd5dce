#include "gnnscale/undirected.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "gnnscale/parallel.hpp"

namespace gnnscale {
namespace {

constexpr int64_t kGrain = 4096;
// Vertices whose cursors advance as one group: 1 MiB of cursors stays in a core's own cache.
constexpr int64_t kWalked = 1 << 17;

template <typename Vertex>
bool is_simple(const Lists<Vertex>& lists, int num_threads) {
  std::atomic<bool> simple{true};
  parallel_for(lists.num_vertices, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end && simple; ++v) {
      for (int64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; ++e) {
        const bool ascends = e == lists.indptr[v] || lists.indices[e - 1] < lists.indices[e];
        if (!ascends || lists.indices[e] == v) simple = false;
      }
    }
  });
  return simple;
}

// Returns a copy of the lists without self-loops and repeated neighbors, ascending.
template <typename Vertex>
void make_simple(const Lists<Vertex>& lists, int num_threads, Undirected<Vertex>* out) {
  const int64_t n = lists.num_vertices;
  out->indptr = Array<int64_t>(n + 1);
  out->indices = Array<Vertex>(lists.indptr[n]);
  int64_t* indptr = out->indptr.data.get();
  Vertex* indices = out->indices.data.get();
  std::atomic<int64_t> num_loops{0};
  parallel_for(n, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    int64_t loops = 0;
    for (int64_t v = begin; v < end; ++v) {
      Vertex* first = indices + lists.indptr[v];
      Vertex* last = std::remove_copy(lists.indices + lists.indptr[v],
                                      lists.indices + lists.indptr[v + 1], first, Vertex(v));
      loops += lists.indptr[v + 1] - lists.indptr[v] - (last - first);
      if (!std::is_sorted(first, last)) std::sort(first, last);
      indptr[v + 1] = std::unique(first, last) - first;
    }
    num_loops += loops;
  });
  indptr[0] = 0;
  for (int64_t v = 0; v < n; ++v) {
    const int64_t count = indptr[v + 1];
    std::memmove(indices + indptr[v], indices + lists.indptr[v], count * sizeof(Vertex));
    indptr[v + 1] = indptr[v] + count;
  }
  out->num_loops = num_loops;
  out->num_duplicates = lists.indptr[n] - num_loops - indptr[n];
}

// Calls use(u, v) for the edges v <- u without a reverse, that is, v is not in the list of u. For
// every u, v ascends. One pass: lists are walked in the order of v while a cursor advances along
// each u's own list.
template <typename Vertex, typename Use>
void for_one_way(const Lists<Vertex>& lists, int num_threads, const Use& use) {
  parallel_for(lists.num_vertices, kWalked, num_threads, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> cursors(lists.indptr + begin, lists.indptr + end);
    const bool all = begin == 0 && end == lists.num_vertices;
    for (int64_t v = 0; v < lists.num_vertices; ++v) {
      const Vertex* next = lists.indices + lists.indptr[v];
      const Vertex* last = lists.indices + lists.indptr[v + 1];
      if (!all) next = std::lower_bound(next, last, Vertex(begin));
      for (; next < last && *next < end; ++next) {
        const int64_t u = *next;
        int64_t& cursor = cursors[u - begin];
        while (cursor < lists.indptr[u + 1] && lists.indices[cursor] < v) ++cursor;
        if (cursor == lists.indptr[u + 1] || lists.indices[cursor] != v) use(u, v);
      }
    }
  });
}

// Merges the reverse of every one-way edge into the lists. `starts` has offsets of the one-way
// edges.
template <typename Vertex>
void add_reverses(const Lists<Vertex>& lists, const std::vector<int64_t>& starts, int num_threads,
                  Undirected<Vertex>* out) {
  const int64_t n = lists.num_vertices;
  Array<Vertex> reverses(starts[n]);
  std::vector<int64_t> slots(starts.begin(), starts.end() - 1);
  for_one_way(lists, num_threads,
              [&](int64_t u, int64_t v) { reverses.data[slots[u]++] = Vertex(v); });
  Array<int64_t> indptr(n + 1);
  for (int64_t v = 0; v <= n; ++v) indptr.data[v] = lists.indptr[v] + starts[v];
  Array<Vertex> indices(indptr.data[n]);
  parallel_for(n, kGrain, num_threads, [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      std::merge(lists.indices + lists.indptr[v], lists.indices + lists.indptr[v + 1],
                 reverses.data.get() + starts[v], reverses.data.get() + starts[v + 1],
                 indices.data.get() + indptr.data[v]);
    }
  });
  out->indptr = std::move(indptr);
  out->indices = std::move(indices);
}

}  // namespace

template <typename Vertex>
Undirected<Vertex> make_undirected(const Lists<Vertex>& lists, int num_threads) {
  Undirected<Vertex> out;
  const int64_t n = lists.num_vertices;
  Lists<Vertex> simple = lists;
  out.unchanged = is_simple(lists, num_threads);
  if (!out.unchanged) {
    make_simple(lists, num_threads, &out);
    simple.indptr = out.indptr.data.get();
    simple.indices = out.indices.data.get();
    // The array ends with its valid entries.
    out.indices.size = simple.indptr[n];
  }
  std::vector<int64_t> starts(n + 1);
  for_one_way(simple, num_threads, [&](int64_t u, int64_t) { ++starts[u + 1]; });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  out.num_one_way = starts[n];
  if (out.num_one_way > 0) {
    out.unchanged = false;
    add_reverses(simple, starts, num_threads, &out);
  }
  return out;
}

template Undirected<int32_t> make_undirected(const Lists<int32_t>&, int);
template Undirected<int64_t> make_undirected(const Lists<int64_t>&, int);

}  // namespace gnnscale
