#include "lessons/runner/pages.hpp"

#include <charconv>

extern "C" {
// NOLINTBEGIN(readability-identifier-naming): symbols of the assembler.
extern const char lockstep_files[];
extern const char lockstep_files_end[];
// NOLINTEND(readability-identifier-naming)
}

namespace lockstep::lessons {

namespace {

std::string_view take_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    return line;
}

}  // namespace

std::string_view text_called(std::string_view path) {
    std::string_view files(lockstep_files, lockstep_files_end);
    while (!files.empty()) {
        const std::string_view name = take_line(files);
        const std::string_view digits = take_line(files);
        std::size_t size = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), size);
        if (name == path) return files.substr(0, size);
        files.remove_prefix(size);
    }
    return {};
}

}  // namespace lockstep::lessons
