// Replacement for the Vitis HLS header, so that a compiler checks the synthesis branch without
// Vitis. It is never executed.
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
