// Stands in for the header of Vitis HLS, as hls_stream.h does.
#pragma once

#include "hls_stream.h"

namespace hls {

template <class T, int depth = 2>
class stream_of_blocks;

template <class T>
class stream_of_blocks<T, 2> {
 public:
  stream_of_blocks() = default;
  stream_of_blocks(const stream_of_blocks&) = delete;
  stream_of_blocks& operator=(const stream_of_blocks&) = delete;
};

template <class T, int depth>
class stream_of_blocks : public stream_of_blocks<T, 2> {};

template <class T>
class write_lock {
 public:
  explicit write_lock(stream_of_blocks<T>& blocks);
  ~write_lock();
  operator T&();
};

template <class T>
class read_lock {
 public:
  explicit read_lock(stream_of_blocks<T>& blocks);
  ~read_lock();
  operator T&();
};

}  // namespace hls
