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
/// then the data. Wider dtypes come first, and tensors of one dtype are in order of their
/// names, so that every tensor is aligned. The bytes are those of Hugging Face's own
/// writer, on every machine. The file appears whole or not at all. Throws
/// std::system_error with the path if the disk is full or the place cannot be written,
/// UsageError for a name that is not UTF-8 or is "__metadata__".
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata = {});
/// The same, durably (WholeFile::finish_durably).
void write_durable_safetensors(const std::filesystem::path& path,
                               const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata = {});

/// Reads a file of F32, F64, I32 and BF16 tensors of up to four dimensions; anything else
/// is refused. Files are not trusted. Throws UsageError, with a sentence that names file
/// and tensor, if the header is truncated, too long or not JSON, if its dtypes, shapes or
/// offsets are wrong, or if tensors overlap or leave gaps. Needs memory of at most a
/// small multiple of the file's size. Throws std::system_error with the path if the file
/// cannot be read.
NamedTensors read_safetensors(const std::filesystem::path& path);

/// A safetensors file from which single tensors, or parts of them, are read. Refuses what
/// read_safetensors() refuses.
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
    /// Returns the texts that the header has in addition to the tensors.
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    /// Reads `count` elements from element `first` on, as a vector. Throws UsageError if
    /// these elements do not exist, or if the file does not have the tensor.
    HostTensor read(const std::string& name, std::int64_t first, std::int64_t count);

  private:
    std::filesystem::path path_;
    InputFile file_;
    std::map<std::string, Entry> tensors_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace lockstep
