#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// Files whose owner is not trusted, and may exchange them at any moment. Everything is
/// opened once, without following links, and looked at by its descriptor. So nobody can
/// put a link in the place of a file between a look and a read.
class SourceFolder {
  public:
    /// A folder without files.
    SourceFolder() = default;
    /// Opens a folder; this path may be a link. Throws MissingError if it cannot be
    /// opened.
    explicit SourceFolder(const std::filesystem::path& path);

    /// A file's bytes, or why there are none: "ring.cpp is not there".
    struct File {
        std::optional<std::string> bytes;
        std::string problem;
    };
    /// Reads a regular file of at most `most_bytes`, which are whole MiB. Throws
    /// MissingError if the file system fails.
    File read(const std::string& name, std::uint64_t most_bytes) const;

    bool has_one_of(const std::vector<std::string>& names) const;
    /// Returns the subfolders that have one of the files, without links; at most two.
    std::vector<SourceFolder> folders_with_one_of(
        const std::vector<std::string>& names) const;

  private:
    explicit SourceFolder(os::Descriptor folder) : folder_(std::move(folder)) {}

    os::Descriptor folder_;
};

/// Reads a file as SourceFolder::read() does.
SourceFolder::File read_source(const std::filesystem::path& file,
                               std::uint64_t most_bytes);

}  // namespace lockstep::lessons
