#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "src/core/host_tensor.hpp"
#include "src/report/files.hpp"

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
/// The same, durably (WholeFile::finish_durably).
void write_durable_safetensors(const std::filesystem::path& path,
                               const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata = {});

/// Reads a file of F32, F64, I32 and BF16 tensors of up to four dimensions; anything else
/// is refused. Files are not trusted: a header that is truncated, too long, no JSON, or
/// that lies about dtypes, shapes or offsets, and tensors that overlap or leave gaps,
/// throw UsageError with a sentence that names file and tensor. No more memory is taken
/// than the file is long, by a small factor. A file that cannot be read throws
/// std::system_error with the path.
NamedTensors read_safetensors(const std::filesystem::path& path);

/// Such a file, of which some tensors are read, or parts of them. Refuses what
/// read_safetensors() does.
class SafetensorsFile {
  public:
    struct Entry {
        DType dtype = DType::f32;
        Shape shape;
        std::uint64_t begin = 0;  ///< its first byte in the file
    };

    explicit SafetensorsFile(const std::filesystem::path& path);

    std::uint64_t bytes() const { return file_.size(); }
    const std::map<std::string, Entry>& tensors() const { return tensors_; }
    /// The texts that the header has beside them.
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// Reads `count` elements from element `first` on, as a vector. Throws UsageError if
    /// they are not there, or if the file does not have the tensor.
    HostTensor read(const std::string& name, std::int64_t first, std::int64_t count);

  private:
    std::filesystem::path path_;
    InputFile file_;
    std::map<std::string, Entry> tensors_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace lockstep
