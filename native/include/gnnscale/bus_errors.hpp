// Reports reads of a mapped file whose page no longer exists, because the file was shortened or its
// disk failed. The kernel raises SIGBUS; the handler names the file and ends the process.
#pragma once

#include <cstddef>
#include <string_view>

namespace gnnscale {

// Copies the name of the file mapped at `address` into `name`, truncated to `capacity`, and returns
// its length; 0 if no file is mapped at the address. Safe in a signal handler.
size_t mapped_file(const void* address, char* name, size_t capacity);

// Maximum number of characters of the text after a file's name.
inline constexpr size_t kMaxBusErrorText = 256;

// Installs a SIGBUS handler that writes the file's name and `after` to the open file `descriptor`,
// and ends the process with the exit status `status`. A SIGBUS outside of mapped files kills the
// process as usual. A forked child inherits the handler. Throws system_error if the kernel refuses
// the handler.
void end_on_bus_error(int descriptor, std::string_view after, int status);

}  // namespace gnnscale
