#include "gnnscale/cached_rows.hpp"

#include <algorithm>

#include "argument_checks.hpp"

namespace gnnscale {
namespace {

void check_type(const char* name, DType actual, DType expected, const char* allowed) {
  if (actual != expected) refuse_type(name, "another type", allowed);
}

// Throws unless slots, which are int32, can number all rows.
void check_rows(const char* name, int64_t num_rows) {
  if (num_rows > kMaxLocal) {
    refuse_value(name, std::to_string(num_rows) + " rows in all", "up to 2^31 - 1");
  }
}

// Caches with type and width of the host's matrix.
struct Caches {
  Caches(const py::object& value, const Rows& host)
      : items(sequence(value, "caches", "a list of rows", kMaxCaches)) {
    for (const py::handle item : items) {
      const std::string name = "caches[" + std::to_string(rows.size()) + "]";
      const Matrix cache = stored_matrix(item, name.c_str());
      check_type(name.c_str(), cache.rows.dtype, host.dtype, "the type of host");
      check_width(name.c_str(), cache.rows.length, host.length);
      check_rows("caches", cache.num_rows);
      check_rows("caches", starts.back() + cache.num_rows);
      rows.push_back(cache.rows);
      starts.push_back(starts.back() + cache.num_rows);
    }
  }

  py::tuple items;
  std::vector<Rows> rows;
  std::vector<int64_t> starts{0};
};

// Returns a checked copy of the caches' first slots.
std::vector<int64_t> starts_of(const py::object& value) {
  const auto offsets = vector<int64_t>(value, "starts");
  if (offsets.size < 1 || offsets.size > kMaxCaches + 1) {
    refuse_value("starts", std::to_string(offsets.size) + " entries",
                 "1 to " + std::to_string(kMaxCaches + 1));
  }
  const std::vector<int64_t> starts(offsets.data, offsets.data + offsets.size);
  check_offsets(starts.data(), offsets.size - 1, starts.back(), "starts");
  check_rows("starts", starts.back());
  return starts;
}

// Throws invalid_argument unless the offsets ascend.
void check_differences(const Vector<const int64_t>& offsets, const char* name, int threads) {
  if (offsets.data == nullptr) return;
  check_offsets(offsets.data, offsets.size - 1, offsets.data[offsets.size - 1], name, threads);
}

// Returns zeroed counts: one for each cache, and one for rows in no cache.
py::array_t<int64_t> zeros(int64_t num_caches) {
  py::array_t<int64_t> counts(num_caches + 1);
  std::fill_n(counts.mutable_data(), counts.size(), 0);
  return counts;
}

// Slot look-up: a table, or RankedSlots, which own their data and are checked once on construction.
struct SlotsOf {
  explicit SlotsOf(const py::object& value, int64_t num_vertices = kAnySize) {
    if (py::isinstance<RankedSlots>(value)) {
      ranked = value.cast<const RankedSlots*>();
      size = ranked->num_vertices();
      if (num_vertices != kAnySize) check_size("slots", size, num_vertices);
    } else {
      const auto table = vector<int32_t>(value, "slots", num_vertices);
      data = table.data;
      size = table.size;
    }
  }

  // Returns the slots for caches with the given first slots.
  Slots of(const std::vector<int64_t>& starts, const char* name) const {
    if (ranked != nullptr && ranked->starts() != starts) {
      refuse_value(name, "other rows than those that slots was made of", "as many of each member");
    }
    return {data, size, starts.data(), static_cast<int64_t>(starts.size()) - 1, ranked};
  }

  const RankedSlots* ranked = nullptr;
  const int32_t* data = nullptr;
  int64_t size = 0;
};

py::array_t<int64_t> gather_rows(const py::object& host, const py::object& caches,
                                 const py::object& slots, const py::object& vertices,
                                 const py::object& out, const py::object& num_threads) {
  const Matrix x = stored_matrix(host, "host");
  Caches members(caches, x.rows);
  const SlotsOf found_by(slots, x.num_rows);
  const Ids requested = ids(vertices, "vertices");
  const MutableMatrix to = mutable_matrix(out, "out");
  check_size("out", to.num_rows, requested.size);
  const Rows source = decoded(x, to.rows.length, "out");
  for (Rows& rows : members.rows) rows.length = source.length;
  const int threads = thread_count(num_threads);
  const auto num_caches = static_cast<int64_t>(members.rows.size());
  const GatherCached task{{source, requested.ids, requested.size, to.rows},
                          members.rows.data(),
                          found_by.of(members.starts, "caches")};
  py::array_t<int64_t> counts = zeros(num_caches);
  int64_t* const hits = counts.mutable_data();
  {
    NoGil released;
    gather_cached(task, hits, threads);
  }
  return counts;
}

py::array_t<int64_t> look_up(const py::object& slots, const py::object& vertices,
                             const py::object& starts, const py::object& weights,
                             const py::object& num_threads) {
  const SlotsOf found_by(slots);
  const Ids requested = ids(vertices, "vertices");
  const std::vector<int64_t> firsts = starts_of(starts);
  const auto offsets = optional_vector<int64_t>(weights, "weights", requested.size + 1);
  const int threads = thread_count(num_threads);
  const Slots of_caches = found_by.of(firsts, "starts");
  py::array_t<int64_t> counts = zeros(of_caches.num_caches);
  int64_t* const hits = counts.mutable_data();
  {
    NoGil released;
    check_differences(offsets, "weights", threads);
    count_slots(of_caches, requested.ids, requested.size, offsets.data, hits, threads);
  }
  return counts;
}

void uses(const py::object& vertices, const py::object& counts, const py::object& num_threads) {
  const Ids used = ids(vertices, "vertices");
  const auto to = mutable_vector<int32_t>(counts, "counts");
  const int threads = thread_count(num_threads);
  NoGil released;
  count_uses(used.ids, used.size, nullptr, to.data, to.size, threads);
}

void reads(const py::object& indptr, const py::object& vertices, const py::object& counts,
           const py::object& num_threads) {
  const Ids read = ids(vertices, "vertices");
  const auto offsets = vector<int64_t>(indptr, "indptr", read.size + 1);
  const auto to = mutable_vector<int32_t>(counts, "counts");
  const int threads = thread_count(num_threads);
  NoGil released;
  check_differences(offsets, "indptr", threads);
  count_uses(read.ids, read.size, offsets.data, to.data, to.size, threads);
}

void copy(const py::object& source, const py::object& vertices, const py::object& target,
          const py::object& slots_of_target, const py::object& num_threads) {
  const Matrix from = stored_matrix(source, "source");
  const Ids source_ids = ids(vertices, "vertices");
  const MutableMatrix to = mutable_storage(target, "target");
  check_type("target", to.rows.dtype, from.rows.dtype, "the type of source");
  check_width("target", to.rows.length, from.rows.length);
  const Ids target_ids = ids(slots_of_target, "slots_of_target");
  check_size("slots_of_target", target_ids.size, source_ids.size);
  const int threads = thread_count(num_threads);
  NoGil released;
  const Rows bytes = as_bytes(from.rows);
  const MutableRows to_bytes{to.rows.data, bytes.dtype, to.rows.length, to.rows.stride};
  copy_rows({bytes, from.num_rows, source_ids.ids, source_ids.size, to_bytes, to.num_rows,
             target_ids.ids},
            threads);
}

}  // namespace

void bind_cached_rows(py::module_& m) {
  m.def("gather_cached", &gather_rows, "host"_a, "caches"_a, "slots"_a, "vertices"_a, py::kw_only(),
        "out"_a, "num_threads"_a);
  m.def("count_slots", &look_up, "slots"_a, "vertices"_a, "starts"_a, py::kw_only(),
        "weights"_a = py::none(), "num_threads"_a);
  m.def("count_uses", &uses, "vertices"_a, "counts"_a, py::kw_only(), "num_threads"_a);
  m.def("count_reads", &reads, "indptr"_a, "vertices"_a, "counts"_a, py::kw_only(),
        "num_threads"_a);
  m.def("copy_rows", &copy, "source"_a, "vertices"_a, "target"_a, "slots_of_target"_a,
        py::kw_only(), "num_threads"_a);
}

}  // namespace gnnscale
