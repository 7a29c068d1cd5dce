#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <system_error>
#include <vector>

#include "gnnscale/parallel.hpp"
#include "gnnscale/undirected.hpp"

namespace gnnscale {
namespace {

// Vertices and entries of a slice, whose text each thread holds in memory.
constexpr int64_t kSliceVertices = 1 << 16;
constexpr int64_t kSliceEntries = 1 << 20;
constexpr int64_t kDigits = 21;  // of any 64-bit number and its separator

void append(std::string* text, int64_t number, char then) {
  char digits[kDigits];
  char* end = std::to_chars(digits, digits + kDigits - 1, number).ptr;
  *end++ = then;
  text->append(digits, end);
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw std::system_error(errno, std::generic_category(), "graph");
    done += static_cast<size_t>(written);
  }
}

template <typename Vertex>
void append_vertex(const MetisText<Vertex>& graph, int64_t v, std::string* text) {
  if (graph.vertex_weights != nullptr) append(text, graph.vertex_weights[v], ' ');
  for (int64_t e = graph.lists.indptr[v]; e < graph.lists.indptr[v + 1]; ++e) {
    append(text, int64_t{graph.lists.indices[e]} + 1, ' ');
    if (graph.edge_weights != nullptr) append(text, graph.edge_weights[e], ' ');
  }
  // The line's last blank becomes its newline; vertices without neighbors have an empty line.
  if (!text->empty() && text->back() == ' ') {
    text->back() = '\n';
  } else {
    text->push_back('\n');
  }
}

template <typename Vertex>
int64_t end_of_slice(const Lists<Vertex>& lists, int64_t first) {
  const int64_t* from = lists.indptr + first;
  const int64_t* to = lists.indptr + std::min(lists.num_vertices, first + kSliceVertices);
  const int64_t* end = std::upper_bound(from, to + 1, *from + kSliceEntries) - 1;
  return std::max(first + 1, static_cast<int64_t>(end - lists.indptr));
}

}  // namespace

template <typename Vertex>
int64_t write_metis(int fd, const MetisText<Vertex>& graph, int num_threads) {
  const Lists<Vertex>& lists = graph.lists;
  std::string head;
  append(&head, lists.num_vertices, ' ');
  append(&head, lists.indptr[lists.num_vertices] / 2, ' ');
  head += graph.vertex_weights != nullptr ? "1" : "0";
  head += graph.edge_weights != nullptr ? "1\n" : "0\n";
  write_all(fd, head);
  auto num_bytes = static_cast<int64_t>(head.size());
  std::vector<std::string> texts(num_threads);
  std::vector<int64_t> bounds;
  for (int64_t first = 0; first < lists.num_vertices; first = bounds.back()) {
    bounds.assign(1, first);
    while (std::ssize(bounds) <= num_threads && bounds.back() < lists.num_vertices) {
      bounds.push_back(end_of_slice(lists, bounds.back()));
    }
    const int64_t num_slices = std::ssize(bounds) - 1;
    parallel_for(num_slices, 1, num_threads, [&](int64_t begin, int64_t end) {
      for (int64_t slice = begin; slice < end; ++slice) {
        texts[slice].clear();
        for (int64_t v = bounds[slice]; v < bounds[slice + 1]; ++v) {
          append_vertex(graph, v, &texts[slice]);
        }
      }
    });
    for (int64_t slice = 0; slice < num_slices; ++slice) {
      write_all(fd, texts[slice]);
      num_bytes += std::ssize(texts[slice]);
    }
  }
  return num_bytes;
}

template int64_t write_metis(int, const MetisText<int32_t>&, int);
template int64_t write_metis(int, const MetisText<int64_t>&, int);

}  // namespace gnnscale
