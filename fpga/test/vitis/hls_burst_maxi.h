// Replacement for the Vitis HLS header, as hls_stream.h.
#pragma once

#include <cstddef>

namespace hls {

template <class T>
class burst_maxi {
 public:
  burst_maxi(T* port);

  void read_request(size_t offset, size_t length);
  T read();
  void write_request(size_t offset, size_t length);
  void write(const T& word);
  void write_response();
};

}  // namespace hls
