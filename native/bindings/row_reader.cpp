#include "gnnscale/row_reader.hpp"

#include <list>
#include <mutex>

#include "disk.hpp"

namespace gnnscale {

std::string path_of(py::handle value) {
  if (!py::isinstance<py::str>(value)) refuse_type("path", type_name(value), "a string");
  const auto bytes = py::reinterpret_steal<py::bytes>(PyUnicode_EncodeFSDefault(value.ptr()));
  if (!bytes) {
    PyErr_Clear();
    refuse_value("path", "characters that names of files cannot have", "others");
  }
  std::string path = bytes;
  if (path.find('\0') != std::string::npos) refuse_value("path", "a null character", "others");
  return path;
}

ReadEngine engine_of(py::handle value) {
  const auto text = py::isinstance<py::str>(value) ? std::string(py::str(value)) : type_name(value);
  if (text == "auto") return ReadEngine::any;
  if (text == "io_uring") return ReadEngine::io_uring;
  if (text == "threads") return ReadEngine::threads;
  refuse_value("engine", text, "auto, io_uring and threads");
}

void raise(const FileError& error, const std::string& path) {
  const auto name = py::reinterpret_steal<py::object>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size())));
  const py::object exception = py::handle(PyExc_OSError)(error.code, error.what(), name);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 31;

// Keeps row pools alive until their tickets are done.
class BoundReader {
 public:
  BoundReader(RowFile file, const ReaderOptions& options) : reader_(std::move(file), options) {}
  ~BoundReader() {
    // Reads must end before their pools are freed.
    NoGil released;
    reader_.close();
  }

  int64_t submit(const py::object& rows, const py::object& pool, const py::object& slots) {
    const RowFile& file = reader_.file();
    const Ids requested = ids(rows, "rows");
    auto [matrix, owner] = kept_storage(pool, "pool");
    const int64_t itemsize = element_bytes(matrix.rows.dtype);
    if (matrix.rows.length * itemsize != file.row_bytes) {
      refuse_value("pool", "rows of " + std::to_string(matrix.rows.length * itemsize) + " bytes",
                   std::to_string(file.row_bytes));
    }
    if (matrix.num_rows > kMaxSlots) refuse_value("pool", "more than 2^31 rows", "fewer");
    const auto targets = vector<int32_t>(slots, "slots", requested.size);
    const RowPool to{static_cast<uint8_t*>(matrix.rows.data), matrix.rows.stride * itemsize,
                     matrix.num_rows};
    std::list<Kept> entry(1);
    entry.front().pool = std::move(owner);
    const int64_t ticket = [&] {
      NoGil released;
      return reader_.submit(requested.ids, targets.data, requested.size, to);
    }();
    entry.front().ticket = ticket;
    {
      const std::lock_guard lock(mutex_);
      kept_.splice(kept_.end(), entry);  // cannot fail
    }
    drop_ended();
    return ticket;
  }

  void wait(const py::object& ticket) {
    const int64_t number = ticket_of(ticket);
    Signals signals;
    try {
      NoGil released;
      while (!reader_.wait(number, std::chrono::milliseconds(50))) signals();
    } catch (const FileError& error) {
      drop_ended();
      raise(error, reader_.file().path);
    }
    drop_ended();
  }

  bool is_done(const py::object& ticket) const { return reader_.is_done(ticket_of(ticket)); }

  py::dict take_counters() {
    const ReadCounters counters = reader_.take_counters();
    return py::dict("requests"_a = counters.requests, "bytes_read"_a = counters.bytes_read,
                    "bytes_wanted"_a = counters.bytes_wanted,
                    "bytes_copied"_a = counters.bytes_copied, "busy_s"_a = counters.busy_s);
  }

  void close() {
    {
      NoGil released;
      reader_.close();
    }
    drop_ended();
  }

  const char* engine() const { return name_of(reader_.engine()); }
  bool direct() const { return reader_.direct(); }

 private:
  struct Kept {
    int64_t ticket = 0;
    py::object pool;
  };

  static int64_t ticket_of(const py::object& ticket) {
    return integer(ticket, "ticket", 0, INT64_MAX);
  }

  // Releases the pools of done tickets, up to the oldest ticket that is not done.
  void drop_ended() {
    std::list<Kept> ended;  // destroyed after the lock is released: it may run Python code
    const std::lock_guard lock(mutex_);
    while (!kept_.empty() && !reader_.holds(kept_.front().ticket)) {
      ended.splice(ended.end(), kept_, kept_.begin());
    }
  }

  RowReader reader_;
  std::mutex mutex_;
  std::list<Kept> kept_;
};

std::unique_ptr<BoundReader> open_reader(const py::object& path, const py::object& offset,
                                         const py::object& num_rows, const py::object& row_bytes,
                                         const py::object& depth, const py::object& max_gap_bytes,
                                         const py::object& max_request_bytes,
                                         const py::object& engine, const py::object& direct) {
  RowFile file{path_of(path), integer(offset, "offset", 0, kMaxReadOffset),
               integer(num_rows, "num_rows", 0, kMaxFileRows),
               integer(row_bytes, "row_bytes", 1, kMaxRowBytes)};
  ReaderOptions options;
  options.depth = static_cast<int>(integer(depth, "depth", 1, kMaxReadDepth));
  options.max_gap_bytes = integer(max_gap_bytes, "max_gap_bytes", 0, kMaxRequestBytes);
  options.max_request_bytes = integer(max_request_bytes, "max_request_bytes", 1, kMaxRequestBytes);
  options.engine = engine_of(engine);
  options.direct = flag(direct, "direct");
  const std::string name = file.path;
  try {
    NoGil released;
    return std::make_unique<BoundReader>(std::move(file), options);
  } catch (const FileError& error) {
    raise(error, name);
  }
}

}  // namespace

void bind_row_reader(py::module_& m) {
  using Bound = BoundReader;
  py::class_<Bound>(m, "RowReader", py::module_local())
      .def(py::init(naming<4>("depth", &open_reader)), "path"_a, py::kw_only(), "offset"_a,
           "num_rows"_a, "row_bytes"_a, "depth"_a = 64, "max_gap_bytes"_a,
           "max_request_bytes"_a = 1 << 18, "engine"_a = "auto", "direct"_a = true)
      .def("submit", &Bound::submit, "rows"_a, "pool"_a, "slots"_a)
      .def("wait", &Bound::wait, "ticket"_a)
      .def("is_done", &Bound::is_done, "ticket"_a)
      .def("take_counters", &Bound::take_counters)
      .def("close", &Bound::close)
      .def_property_readonly("engine", &Bound::engine)
      .def_property_readonly("direct", &Bound::direct);
}

}  // namespace gnnscale
