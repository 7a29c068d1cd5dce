#include "aligned_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <new>

#include "gnnscale/row_reader.hpp"

namespace gnnscale {
namespace {

// Page size, and the alignment of direct reads if the kernel does not report one.
constexpr int64_t kPage = 4096;

// Returns the alignment of direct reads from statx: 0 if unsupported. Constants are copied from the
// kernel's interface, since headers older than Linux 6.1 lack them.
int64_t direct_alignment(int fd) {
  constexpr unsigned kDioAlign = 0x2000;
  constexpr size_t kMaskAt = 0, kMemoryAt = 152, kOffsetAt = 156;
  alignas(8) char answer[256] = {};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kDioAlign, answer) != 0) return kPage;
  const auto field = [&](size_t at) {
    uint32_t value;
    std::memcpy(&value, answer + at, sizeof value);
    return static_cast<int64_t>(value);
  };
  if ((field(kMaskAt) & kDioAlign) == 0) return kPage;
  const int64_t memory = field(kMemoryAt), offset = field(kOffsetAt);
  if (memory > kPage || offset == 0 || !std::has_single_bit(static_cast<uint64_t>(offset))) {
    return 0;
  }
  return offset;
}

}  // namespace

AlignedFile::AlignedFile(const std::string& path, bool direct) : alignment_(kPage) {
  // Without O_NONBLOCK, open would wait on a pipe that has no writer.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) throw FileError(errno, std::strerror(errno));
  struct stat status;
  if (fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw std::invalid_argument("path: " + path + ", allowed are regular files");
  }
  size_ = status.st_size;
  direct_ = direct && set_direct();
  if (direct_) return;
  fcntl(fd_, F_SETFL, 0);
  posix_fadvise(fd_, 0, 0, POSIX_FADV_RANDOM);
}

AlignedFile::~AlignedFile() { ::close(fd_); }

bool AlignedFile::set_direct() {
  const int64_t alignment = direct_alignment(fd_);
  if (alignment == 0 || alignment > kMaxRowBytes) return false;
  if (fcntl(fd_, F_SETFL, O_DIRECT) != 0) return false;
  // Some file systems accept O_DIRECT and then fail to read.
  const AlignedMemory memory(static_cast<size_t>(alignment));
  if (pread(fd_, memory.data(), memory.size(), 0) < 0) return false;
  alignment_ = alignment;
  return true;
}

void AlignedFile::forget(int64_t begin, int64_t length) const {
  if (!direct_) posix_fadvise(fd_, begin, length, POSIX_FADV_DONTNEED);
}

AlignedMemory::AlignedMemory(size_t num_bytes) : size_(num_bytes) {
  void* start = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) throw std::bad_alloc();
  madvise(start, size_, MADV_DONTFORK);
  data_ = static_cast<uint8_t*>(start);
}

AlignedMemory::~AlignedMemory() { munmap(data_, size_); }

}  // namespace gnnscale
