// File access in units of the alignment of direct reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gnnscale {

// A file opened for reading.
class AlignedFile {
 public:
  // Reads bypass the page cache if `direct` and the file system can. Throws FileError, or
  // invalid_argument if `path` is no regular file.
  AlignedFile(const std::string& path, bool direct);
  ~AlignedFile();
  AlignedFile(const AlignedFile&) = delete;
  AlignedFile& operator=(const AlignedFile&) = delete;

  int fd() const { return fd_; }
  int64_t size() const { return size_; }
  bool direct() const { return direct_; }
  int64_t alignment() const { return alignment_; }  // a power of two
  // Drops a range from the page cache; no-op with direct reads.
  void forget(int64_t begin, int64_t length) const;

 private:
  bool set_direct();

  int fd_ = -1;
  int64_t size_ = 0;
  bool direct_ = false;
  int64_t alignment_;
};

// Page-aligned memory excluded from forked children, so that copy-on-write never redirects the
// disk's writes.
class AlignedMemory {
 public:
  explicit AlignedMemory(size_t num_bytes);
  ~AlignedMemory();
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;
};

}  // namespace gnnscale
