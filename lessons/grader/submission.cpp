#include "lessons/grader/submission.hpp"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "lessons/page/sha256.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Returns the folder that has the files: `path`, or the only subfolder that has files.
SourceFolder folder_with(const fs::path& path, const std::vector<std::string>& files) {
    SourceFolder folder(path);
    if (folder.has_one_of(files)) return folder;
    std::vector<SourceFolder> within = folder.folders_with_one_of(files);
    return within.size() == 1 ? std::move(within.front()) : std::move(folder);
}

bool is_archive(const fs::path& path) {
    std::error_code error;
    return path.extension() == ".zip" && !fs::is_directory(path, error);
}

constexpr std::uint64_t kLargestArchive = 64 << 20;

/// Returns the bytes of a file, or why there are none, as a text without doubt.
std::string contents_of(const SourceFolder::File& file) {
    if (!file.bytes) return file.problem;
    return fmt::format("has {} bytes: {}", file.bytes->size(), *file.bytes);
}

}  // namespace

std::string fingerprint_of(const fs::path& submission,
                           const std::vector<std::string>& files) {
    std::string text = kVersion;
    try {
        if (is_archive(submission))
            return sha256(text + contents_of(read_source(submission, kLargestArchive)));
        const SourceFolder folder = folder_with(submission, files);
        for (const std::string& name : files)
            text += fmt::format("; {} {}", name,
                                contents_of(folder.read(name, kLargestArchive)));
    } catch (const std::exception&) {
        return "";
    }
    return sha256(text);
}

std::string name_of_submission(const fs::path& path) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    const fs::path last = whole.has_filename() ? whole : whole.parent_path();
    std::string name = (is_archive(path) ? last.stem() : last.filename()).string();
    constexpr std::size_t kLongest = 200;
    constexpr std::size_t kDigits = 16;
    if (name.size() <= kLongest) return name;
    return name.substr(0, kLongest - kDigits - 1) + "-" + sha256(name).substr(0, kDigits);
}

Submission::Submission(const fs::path& path, const std::vector<std::string>& files,
                       const Kit& kit, const fs::path& scratch)
    : folder_(is_archive(path) ? SourceFolder() : folder_with(path, files)) {
    if (is_archive(path)) unpack(path, files, kit, scratch);
}

void Submission::unpack(const fs::path& path, const std::vector<std::string>& files,
                        const Kit& kit, const fs::path& scratch) {
    const std::string name = path.filename().string();
    const SourceFolder::File archive = read_source(path, kLargestArchive);
    if (!archive.bytes) {
        failure_ = BuildFailure{name, 0, archive.problem, ""};
        return;
    }
    fs::create_directory(scratch);
    const fs::path file = scratch / "submission.zip";
    write_text_file(file, *archive.bytes);
    const fs::path unpacked = scratch / "unpacked";
    fs::create_directory(unpacked);
    std::vector<std::string> words{"python3", "-B", kit.unpacker().string(),
                                   file.string(), unpacked.string()};
    words.insert(words.end(), files.begin(), files.end());
    constexpr double kLongestSeconds = 60;
    const os::Child unpacking = os::run_child(words, kLongestSeconds);
    if (unpacking.status == 0) {
        folder_ = folder_with(unpacked, files);
        return;
    }
    std::string said = unpacking.errors;
    said.erase(said.find_last_not_of('\n') + 1);
    constexpr int kBadArchive = 1;
    if (unpacking.status != kBadArchive || said.find('\n') != std::string::npos)
        throw MissingError(fmt::format("{} could not be unpacked here: {}", name,
                                       said.substr(said.rfind('\n') + 1)));
    failure_ = BuildFailure{name, 0, said, ""};
}

}  // namespace lockstep::lessons
