#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "src/os/descriptor.hpp"

namespace lockstep {

/// The end of the name that a file has until it is whole, behind a "." and its own.
inline constexpr std::string_view kUnfinished = ".part";

/// A file that appears whole or not at all: it is written under another name beside its
/// place and takes the place in finish(). Without finish() the destructor removes what
/// was written. If the path is a link, the file that it names is replaced.
///
/// Every failure throws std::system_error with the path; something else than a file in
/// its place, a pipe for one, is a UsageError.
class WholeFile {
  public:
    explicit WholeFile(std::filesystem::path path);
    ~WholeFile();
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    void write(const std::byte* data, std::size_t size);
    void write(std::string_view text);
    void finish();
    /// The same; when it returns, the file is on the disk and stays there, even if the
    /// power fails.
    void finish_durably();

  private:
    std::filesystem::path path_;   ///< as messages name it
    std::filesystem::path place_;  ///< the same without links
    std::filesystem::path temporary_;
    int descriptor_ = -1;
};

/// The text as a file, whole or not at all.
void write_text_file(const std::filesystem::path& path, std::string_view text);
/// The same, durably.
void write_durable_text_file(const std::filesystem::path& path, std::string_view text);
/// Makes the folder, and those on the way to it, unless they are there. When it returns,
/// it stays there, even if the power fails, if those on the way do.
void make_durable_folder(const std::filesystem::path& path);

/// Removes the file, if there is one; when it returns, it does not come back, even if the
/// power fails.
void remove_durably(const std::filesystem::path& path);

/// Throws what writing the file would throw; asked before a long run. Nothing is left.
void require_writable_file(const std::filesystem::path& path);

/// A regular file, open for reading from its first byte on. The constructor throws
/// std::system_error if it cannot be opened, UsageError if it is a folder or a device.
class InputFile {
  public:
    explicit InputFile(std::filesystem::path path);

    std::uint64_t size() const { return size_; }
    /// The next `size` bytes; std::system_error if they cannot be read or are not there.
    void read(void* destination, std::uint64_t size);
    /// `size` bytes from byte `begin` on; the next read() goes on where it would have.
    void read_at(std::uint64_t begin, void* destination, std::uint64_t size);

  private:
    std::filesystem::path path_;
    os::Descriptor file_;
    std::uint64_t size_ = 0;
};

/// Returns the bytes of a regular file. Throws std::system_error with the path if it
/// cannot be read, UsageError if it is no regular file or has more than `limit_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// Returns the bytes of a file, or what comes from a pipe or a device until its end.
/// Throws as read_text_file does, and UsageError if nobody writes to the pipe, or if its
/// writer is silent for half a minute.
std::string read_text_input(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace lockstep
