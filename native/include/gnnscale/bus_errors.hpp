// A read of a mapped file whose page is gone: the file became shorter, or its disk fails. The
// system answers with SIGBUS, after which the process can name the file, and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace gnnscale {

// Copies the name of the file that is mapped at `address` into `name`, and returns its length; 0 if
// no file is mapped there. A longer name is cut. Safe in a signal handler.
size_t mapped_file(const void* address, char* name, size_t capacity);

// Characters of the text after a file's name.
inline constexpr size_t kMaxBusErrorText = 256;

// From now on such a read writes the file's name and `after` to the open file `descriptor`, and
// ends the process with the exit status `status`. A SIGBUS without a mapped file kills it as
// before. A new process inherits that through fork. Throws system_error if the system refuses.
void end_on_bus_error(int descriptor, std::string_view after, int status);

}  // namespace gnnscale
