#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/os/descriptor.hpp"

namespace lockstep {

/// The ending of the name that a file has until it is whole.
inline constexpr std::string_view kUnfinished = ".part";

/// A file that appears whole or not at all: it is written under another name in the same
/// folder, and finish() renames it. Without finish() the destructor removes it. If the
/// path is a link, the file that the link names is replaced.
///
/// A pipe with a reader, such as /dev/stdout, and a terminal are written to directly.
///
/// Every failure throws std::system_error with the path. If there is something else at
/// the path, such as a folder or a device, throws UsageError.
class WholeFile {
  public:
    explicit WholeFile(std::filesystem::path path);
    ~WholeFile();
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    void write(const std::byte* data, std::size_t size);
    void write(std::string_view text);
    void finish();
    /// Like finish(), but afterwards the file is on the disk and survives a power
    /// failure.
    void finish_durably();

  private:
    std::filesystem::path path_;       ///< as messages name it
    std::filesystem::path place_;      ///< the path without links
    std::filesystem::path temporary_;  ///< empty if this is a stream
    int descriptor_ = -1;
};

/// Writes the text as a file, whole or not at all.
void write_text_file(const std::filesystem::path& path, std::string_view text);
/// The same, durably.
void write_durable_text_file(const std::filesystem::path& path, std::string_view text);
/// Makes the folder and its parents, unless they exist. Afterwards the folder survives a
/// power failure, if its older parents survive it, too.
void make_durable_folder(const std::filesystem::path& path);

/// Removes the file, if there is one. Afterwards the file does not come back, even if the
/// power fails.
void remove_durably(const std::filesystem::path& path);

/// Returns whether the path leads to a pipe or a terminal, which WholeFile writes to
/// directly.
bool leads_to_stream(const std::filesystem::path& path);

/// Throws what writing the file would throw; leaves no file. Call it before a long run. A
/// stream is not opened, because its reader would see its end.
void require_writable_file(const std::filesystem::path& path);

/// A regular file, open for reading from its first byte on. The constructor throws
/// std::system_error if opening fails, UsageError for a folder or a device.
class InputFile {
  public:
    explicit InputFile(std::filesystem::path path);

    std::uint64_t size() const { return size_; }
    /// Reads the next `size` bytes. Throws std::system_error if these bytes cannot be
    /// read or do not exist.
    void read(void* destination, std::uint64_t size);
    /// Reads `size` bytes from byte `begin` on. Does not change where the next read()
    /// begins.
    void read_at(std::uint64_t begin, void* destination, std::uint64_t size);

  private:
    std::filesystem::path path_;
    os::Descriptor file_;
    std::uint64_t size_ = 0;
};

/// Returns the bytes of a regular file. Throws std::system_error with the path if reading
/// fails, UsageError if it is no regular file or has more than `limit_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Returns all bytes of a file, or of a pipe or a device until its end. Throws as
/// read_text_file does. Also throws UsageError if the pipe has no writer, or if its
/// writer is silent for half a minute.
std::string read_text_input(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace lockstep
