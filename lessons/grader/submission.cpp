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

bool has_one_of(const fs::path& folder, const std::vector<std::string>& files) {
    std::error_code error;
    return std::ranges::any_of(
        files, [&](const std::string& file) { return fs::exists(folder / file, error); });
}

/// Returns the folder that has the files: `folder`, or the only subfolder that has files.
fs::path folder_with(const fs::path& folder, const std::vector<std::string>& files) {
    if (has_one_of(folder, files)) return folder;
    std::vector<fs::path> within;
    std::error_code error;
    for (fs::directory_iterator each(folder, error), end; !error && each != end;
         each.increment(error))
        if (each->is_directory(error) && !each->is_symlink(error) &&
            has_one_of(each->path(), files))
            within.push_back(each->path());
    return within.size() == 1 ? within.front() : folder;
}

bool is_archive(const fs::path& path) {
    std::error_code error;
    return path.extension() == ".zip" && fs::is_regular_file(path, error);
}

/// Returns the bytes of a file, or a text that says that it is not a regular file.
std::string contents_of(const fs::path& file) {
    constexpr std::uint64_t kLargest = 64 << 20;
    std::error_code error;
    if (!fs::is_regular_file(fs::symlink_status(file, error))) return "is no file";
    const std::string bytes = read_text_file(file, kLargest);
    return fmt::format("has {} bytes: {}", bytes.size(), bytes);
}

}  // namespace

std::string fingerprint_of(const fs::path& submission,
                           const std::vector<std::string>& files) {
    std::string text = kVersion;
    try {
        if (is_archive(submission)) return sha256(text + contents_of(submission));
        const fs::path folder = folder_with(submission, files);
        for (const std::string& name : files)
            text += fmt::format("; {} {}", name, contents_of(folder / name));
    } catch (const std::exception&) {
        return "";
    }
    return sha256(text);
}

std::string name_of_submission(const fs::path& path) {
    const fs::path whole = fs::absolute(path).lexically_normal();
    const fs::path last = whole.has_filename() ? whole : whole.parent_path();
    return (is_archive(path) ? last.stem() : last.filename()).string();
}

Submission::Submission(const fs::path& path, const std::vector<std::string>& files,
                       const Kit& kit, const fs::path& scratch)
    : folder_(is_archive(path) ? scratch : folder_with(path, files)) {
    if (is_archive(path)) unpack(path, files, kit);
}

void Submission::unpack(const fs::path& file, const std::vector<std::string>& files,
                        const Kit& kit) {
    fs::create_directory(folder_);
    std::vector<std::string> words{"python3", "-B", kit.unpacker().string(),
                                   fs::absolute(file).string(), folder_.string()};
    words.insert(words.end(), files.begin(), files.end());
    constexpr double kLongestSeconds = 60;
    const os::Child unpacking = os::run_child(words, kLongestSeconds);
    if (unpacking.status == 0) return;
    std::string said = unpacking.errors;
    said.erase(said.find_last_not_of('\n') + 1);
    constexpr int kBadArchive = 1;
    if (unpacking.status != kBadArchive || said.find('\n') != std::string::npos)
        throw MissingError(fmt::format("{} could not be unpacked here: {}",
                                       file.filename().string(),
                                       said.substr(said.rfind('\n') + 1)));
    failure_ = BuildFailure{file.filename().string(), 0, said, ""};
}

}  // namespace lockstep::lessons
