#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// A file that appears whole or not at all: it is written under another name beside its
/// place and takes the place in finish(). Without finish() the destructor removes what
/// was written. Every failure throws std::system_error with the path.
class WholeFile {
  public:
    explicit WholeFile(std::filesystem::path path);
    ~WholeFile();
    WholeFile(const WholeFile&) = delete;
    WholeFile& operator=(const WholeFile&) = delete;

    void write(const std::byte* data, std::size_t size);
    void write(std::string_view text);
    void finish();

  private:
    std::filesystem::path path_;
    std::filesystem::path temporary_;
    int descriptor_ = -1;
};

/// The text as a file, whole or not at all.
void write_text_file(const std::filesystem::path& path, std::string_view text);

/// A regular file, open for reading from its first byte on. The constructor throws
/// std::system_error if it cannot be opened, UsageError if it is a folder or a device.
class InputFile {
  public:
    explicit InputFile(std::filesystem::path path);
    ~InputFile();
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;

    std::uint64_t size() const { return size_; }
    /// The next `size` bytes; std::system_error if they cannot be read or are not there.
    void read(void* destination, std::uint64_t size);

  private:
    std::filesystem::path path_;
    std::uint64_t size_ = 0;
    int descriptor_ = -1;
};

/// The bytes of a file; UsageError if there are more than `limit_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

}  // namespace lockstep
