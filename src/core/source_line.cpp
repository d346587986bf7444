#include "src/core/source_line.hpp"

#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

namespace lockstep {

SourceLine SourceLine::of(const std::string& file, int line) {
    static std::mutex mutex;
    static std::set<std::string> files;
    const std::lock_guard lock(mutex);
    return {files.insert(file).first->c_str(), line};
}

bool SourceLine::operator==(const SourceLine& other) const {
    return line == other.line &&
           (file == other.file || std::strcmp(file, other.file) == 0);
}

namespace {

/// Returns the prefix that the build puts before a source's path, such as "../" if the
/// build folder is in the project. The prefix is taken from this file's own path.
std::string_view root_prefix() {
    constexpr std::string_view kHere = __builtin_FILE();
    constexpr std::string_view kFromRoot = "src/core/source_line.cpp";
    static_assert(kHere.ends_with(kFromRoot));
    return kHere.substr(0, kHere.size() - kFromRoot.size());
}

}  // namespace

std::string SourceLine::text() const {
    std::string_view name = file;
    if (name.starts_with(root_prefix())) name.remove_prefix(root_prefix().size());
    return line == 0 ? std::string(name) : std::string(name) + ":" + std::to_string(line);
}

}  // namespace lockstep
