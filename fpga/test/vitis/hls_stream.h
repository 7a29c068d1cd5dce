// Stands in for the header of Vitis HLS, so that a compiler sees the branch for
// synthesis where there is no Vitis. Nothing of it is run.
#pragma once

namespace hls {

template <class T>
class stream {
 public:
  stream() = default;
  explicit stream(const char* /*name*/) {}
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;

  bool empty() const;
  bool full() const;
  T read();
  void write(const T& element);
};

}  // namespace hls
