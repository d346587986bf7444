#include "lessons/grader/compiler_output.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

namespace lockstep::lessons {

namespace {

using Lines = std::vector<std::string_view>;

constexpr std::size_t kMostLines = 10;
constexpr std::size_t kLongestLine = 300;
constexpr std::size_t kLongestMessage = 1000;

Lines lines_of(std::string_view text) {
    Lines lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::string cut(std::string_view text, std::size_t longest) {
    if (text.size() <= longest) return std::string(text);
    return std::string(text.substr(0, longest)) + " ...";
}

struct Place {
    std::string_view file;
    int line = 0;
};

/// Takes ":12" off the end.
std::optional<int> take_number(std::string_view& text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == text.size()) return std::nullopt;
    int number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    text.remove_suffix(text.size() - colon);
    return number;
}

/// "file:line:column", "file:line" or "file".
Place parse_place(std::string_view text) {
    const std::optional<int> last = take_number(text);
    const std::optional<int> before = last ? take_number(text) : std::nullopt;
    return {text, before.value_or(last.value_or(0))};
}

/// Names of files as a student knows them: those in the folder, from there.
class Folder {
  public:
    explicit Folder(const std::filesystem::path& folder) : folder_(folder) {}

    /// Empty where the file is not in the folder.
    std::string own(std::string_view file) const {
        if (file.empty() || file.front() == '<') return "";
        const std::filesystem::path name =
            (folder_ / file).lexically_normal().lexically_proximate(folder_);
        std::error_code error;
        if (name.is_absolute() || *name.begin() == "..") return "";
        return std::filesystem::is_regular_file(folder_ / name, error) ? name.string()
                                                                       : "";
    }

  private:
    std::filesystem::path folder_;
};

/// What stands before and after a word such as ": error: ".
struct Split {
    std::string_view before;
    std::string_view after;
};

std::optional<Split> split(std::string_view line, std::string_view word) {
    const std::size_t at = line.find(word);
    if (at == std::string_view::npos) return std::nullopt;
    return Split{line.substr(0, at), line.substr(at + word.size())};
}

/// "ring.cpp:3:4: error: message", in the words of compilers and assemblers. A quoted
/// line of code, which may have such words too, is indented or has a bar.
std::optional<Split> error_in(std::string_view line) {
    if (line.empty() || line.front() == ' ') return std::nullopt;
    for (const std::string_view word :
         {": fatal error: ", ": internal compiler error: ", ": error: ", ": Error: "})
        if (const auto found = split(line, word)) return found;
    return std::nullopt;
}

bool starts_another(std::string_view line) {
    for (const std::string_view word : {": warning: ", ": note: ", ": In ", ": At "})
        if (!line.empty() && line.front() != ' ' && split(line, word)) return true;
    return error_in(line) || line.starts_with("In file included") ||
           line.starts_with("compilation terminated") || line.ends_with(" generated.") ||
           line.starts_with("cc1plus:");
}

std::string lines_below(const Lines& lines, std::size_t error) {
    std::string text;
    for (std::size_t i = error + 1; i < lines.size() && i <= error + kMostLines; ++i) {
        if (starts_another(lines[i])) break;
        text += cut(lines[i], kLongestLine) + "\n";
    }
    return text;
}

/// The place that a line of the chain to an error names, if it is in the folder: "from
/// ring.cpp:1:", "referenced by ring.cpp:5", "ring.cpp:7:12:   required from here",
/// "ring.cpp:7:12: note: in instantiation of ... requested here".
std::optional<Place> named_place(std::string_view line) {
    for (const std::string_view word : {":   ", ": note: in instantiation"})
        if (const auto found = split(line, word)) return parse_place(found->before);
    for (const std::string_view word : {"from ", "referenced by "})
        if (const auto found = split(line, word)) {
            line = found->after;
            if (line.ends_with(':') || line.ends_with(',')) line.remove_suffix(1);
            return parse_place(line);
        }
    return std::nullopt;
}

/// Sets file and line to what led to the error: instantiations before it (GCC) or after
/// it (clang), else inclusions.
void find_own_place(const Lines& lines, std::size_t error, const Folder& folder,
                    BuildFailure& failure) {
    std::size_t first = error;
    while (first > 0 && !error_in(lines[first - 1]) &&
           lines[first - 1].find(": warning: ") == std::string_view::npos)
        --first;
    Lines chain;
    for (std::size_t i = first; i < error; ++i)
        if (lines[i].find("required from") != std::string_view::npos ||
            lines[i].find("expansion of") != std::string_view::npos)
            chain.push_back(lines[i]);
    for (std::size_t i = error + 1; i < lines.size() && !error_in(lines[i]); ++i)
        if (lines[i].find("requested here") != std::string_view::npos ||
            lines[i].find("referenced by ") != std::string_view::npos)
            chain.push_back(lines[i]);
    for (std::size_t i = error; i > first; --i)
        chain.push_back(lines[i - 1]);
    for (const std::string_view line : chain) {
        const auto place = named_place(line);
        failure.file = place ? folder.own(place->file) : "";
        failure.line = place ? place->line : 0;
        if (!failure.file.empty()) return;
    }
}

/// A linker's complaint: "ring.cpp:5: undefined reference to `f()'", where it knows the
/// line; "ring.cpp:(.text+0x9): ..." where it does not.
std::optional<BuildFailure> link_error(std::string_view line, const Folder& folder) {
    for (const std::string_view word :
         {"undefined reference to ", "multiple definition of "}) {
        const std::size_t at = line.find(word);
        if (at == std::string_view::npos) continue;
        std::string_view before = line.substr(0, at);
        if (const auto found = split(before, "ld: ")) before = found->after;
        before = before.substr(0, before.rfind(": "));
        before = before.substr(0, before.find(":(."));
        const Place place = parse_place(before);
        return BuildFailure{folder.own(place.file), place.line,
                            cut(line.substr(at), kLongestMessage), ""};
    }
    return std::nullopt;
}

/// What a driver says once the linker has failed: the linker itself said why.
bool passes_on(std::string_view message) {
    return message.starts_with("ld returned") ||
           message.starts_with("linker command failed");
}

BuildFailure compile_error(const Lines& lines, std::size_t at, const Split& found,
                           const Folder& folder) {
    if (passes_on(found.after) && at > 0)
        return {"", 0, cut(lines.front(), kLongestMessage), ""};
    const Place place = parse_place(found.before);
    BuildFailure failure{folder.own(place.file), place.line,
                         cut(found.after, kLongestMessage), lines_below(lines, at)};
    if (failure.file.empty()) find_own_place(lines, at, folder, failure);
    return failure;
}

}  // namespace

std::optional<BuildFailure> first_error(const std::string& output,
                                        const std::filesystem::path& folder) {
    const Lines lines = lines_of(output);
    const Folder own(folder);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (const auto found = error_in(lines[i]))
            return compile_error(lines, i, *found, own);
        if (auto failure = link_error(lines[i], own)) return failure;
    }
    return std::nullopt;
}

}  // namespace lockstep::lessons
