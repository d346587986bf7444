#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "src/core/host_tensor.hpp"

namespace lockstep {

using NamedTensors = std::map<std::string, HostTensor>;

/// Writes tensors in the safetensors format: eight bytes of header length, a JSON header,
/// then the data, wider dtypes first and by name among equals, so that every tensor is
/// aligned. The bytes are those of Hugging Face's own writer, whatever the machine. The
/// file appears whole or not at all. Throws std::system_error with the path if the disk
/// is full or the place cannot be written, UsageError for a name that is no UTF-8 or is
/// "__metadata__".
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// Reads a file of F32, F64, I32 and BF16 tensors of up to four dimensions; anything else
/// is refused. Files are not trusted: a header that is truncated, too long, no JSON, or
/// that lies about dtypes, shapes or offsets, and tensors that overlap or leave gaps,
/// throw UsageError with a sentence that names file and tensor. No more memory is taken
/// than the file is long, by a small factor. A file that cannot be read throws
/// std::system_error with the path.
NamedTensors read_safetensors(const std::filesystem::path& path);

}  // namespace lockstep
