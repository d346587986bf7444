#include "src/text/wrap.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "src/text/utf8.hpp"

namespace lockstep {

namespace {

using Range = std::pair<char32_t, char32_t>;

// Unicode's East Asian Width W and F, and marks without width, as far as course text
// needs them.
constexpr std::array<Range, 14> kWide{{{0x1100, 0x115F},
                                       {0x2E80, 0x303E},
                                       {0x3041, 0x33FF},
                                       {0x3400, 0x4DBF},
                                       {0x4E00, 0x9FFF},
                                       {0xA000, 0xA4CF},
                                       {0xAC00, 0xD7A3},
                                       {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},
                                       {0xFF00, 0xFF60},
                                       {0xFFE0, 0xFFE6},
                                       {0x1F300, 0x1F64F},
                                       {0x1F900, 0x1F9FF},
                                       {0x20000, 0x3FFFD}}};
constexpr std::array<Range, 7> kZero{{{0x0300, 0x036F},
                                      {0x1AB0, 0x1AFF},
                                      {0x1DC0, 0x1DFF},
                                      {0x200B, 0x200F},
                                      {0x20D0, 0x20FF},
                                      {0xFE00, 0xFE0F},
                                      {0xFE20, 0xFE2F}}};

template <std::size_t N>
bool within(char32_t value, const std::array<Range, N>& ranges) {
    return std::any_of(ranges.begin(), ranges.end(), [value](const Range& range) {
        return value >= range.first && value <= range.second;
    });
}

int width_of(char32_t value) {
    if (value < 0x300) return 1;
    return within(value, kWide) ? 2 : within(value, kZero) ? 0 : 1;
}

bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Chinese punctuation: no line begins with a closing mark or ends with an opening mark.
constexpr std::u32string_view kClosing = U"，。、；：？！）》」』】”’";
constexpr std::u32string_view kOpening = U"（《「『【“‘";

bool is_one_of(std::u32string_view marks, char32_t value) {
    return marks.find(value) != marks.npos;
}

/// A piece of a paragraph that must not be broken.
struct Piece {
    std::string_view text;
    bool after_space = false;
};

Piece next_piece(std::string_view paragraph, std::size_t& at) {
    const std::size_t before = at;
    while (at < paragraph.size() && is_space(paragraph[at]))
        ++at;
    const std::size_t begin = at;
    bool opens = false;  // has only opening marks so far
    bool whole = false;  // only closing marks may follow
    while (at < paragraph.size() && !is_space(paragraph[at])) {
        const CodePoint point = decode_utf8(paragraph, at);
        const bool wide = width_of(point.value) == 2;
        const bool closing = is_one_of(kClosing, point.value);
        const bool opening = is_one_of(kOpening, point.value);
        if (at > begin && !opens && !closing && (wide || whole)) break;
        opens = opening && (opens || at == begin);
        whole = (wide && !opening) || (whole && closing);
        at += point.bytes;
    }
    return {paragraph.substr(begin, at - begin), begin > before};
}

/// Returns where to break a line if only `fits` bytes fit: behind a comma in the second
/// half, else at a space in the second half, else in a word. Never breaks within the
/// first `indent` bytes.
std::size_t place_to_cut(std::string_view line, std::size_t fits, std::size_t indent) {
    const std::size_t half = std::max(fits / 2, indent);
    const std::size_t comma = line.rfind(", ", fits - 1);
    if (comma != line.npos && comma > half) return comma + 1;
    const std::size_t space = line.rfind(' ', fits);
    return space != line.npos && space > half ? space : fits;
}

}  // namespace

int columns_of(std::string_view text) {
    int width = 0;
    for (std::size_t at = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        width += width_of(point.value);
        at += point.bytes;
    }
    return width;
}

std::size_t bytes_in_columns(std::string_view text, int width) {
    std::size_t at = 0;
    for (int used = 0; at < text.size();) {
        const CodePoint point = decode_utf8(text, at);
        used += width_of(point.value);
        if (used > width && at > 0) break;
        at += point.bytes;
    }
    return at;
}

std::vector<std::string> wrap(std::string_view paragraph, int width) {
    std::vector<std::string> lines;
    std::string line;
    int used = 0;
    const auto end_line = [&] {
        lines.push_back(std::exchange(line, {}));
        used = 0;
    };
    for (std::size_t at = 0; at < paragraph.size();) {
        auto [text, after_space] = next_piece(paragraph, at);
        if (text.empty()) break;
        const int space = after_space && used > 0 ? 1 : 0;
        if (used > 0 && used + space + columns_of(text) > width)
            end_line();
        else
            line.append(static_cast<std::size_t>(space), ' ');
        while (columns_of(text) > width) {
            const std::size_t fits = bytes_in_columns(text, width);
            lines.emplace_back(text.substr(0, fits));
            text.remove_prefix(fits);
        }
        line += text;
        used = columns_of(line);
    }
    if (used > 0) end_line();
    return lines;
}

std::string wrapped(std::string_view text, int width, std::string_view first,
                    std::string_view rest) {
    std::string lines;
    std::string line(first);
    bool line_has_word = false;
    while (!text.empty()) {
        const std::size_t spaces = std::min(text.find_first_not_of(' '), text.size());
        const std::size_t end = std::min(text.find(' ', spaces), text.size());
        const std::string_view gap = text.substr(0, line_has_word ? spaces : 0);
        const std::string_view word = text.substr(spaces, end - spaces);
        text.remove_prefix(end);
        if (word.empty()) break;
        if (line_has_word &&
            columns_of(line) + columns_of(gap) + columns_of(word) > width) {
            lines += line + "\n";
            line = rest;
            line += word;
        } else {
            line += gap;
            line += word;
        }
        line_has_word = true;
    }
    return line_has_word ? lines + line + "\n" : "";
}

namespace {

/// Breaks a line as fold() does. In a comment, each new line begins with `comment`.
std::vector<std::string> cut_line(std::string_view line, int width,
                                  std::string_view comment) {
    std::vector<std::string> lines;
    std::string rest(line);
    const auto leading = std::min(rest.find_first_not_of(' '), rest.size());
    const auto most = static_cast<std::size_t>(width / 2);
    if (columns_of(rest) > width && leading > most) rest.erase(0, leading - most);
    const auto hanging = std::min(leading + 4, most);
    while (columns_of(rest) > width) {
        const std::size_t from = std::min(rest.find_first_not_of(' '), rest.size());
        const std::size_t begin = comment.empty() ? rest.npos : rest.find(comment);
        std::size_t cut =
            place_to_cut(rest, bytes_in_columns(rest, width), std::max(hanging, from));
        // A comment's mark must not be alone at the end of a line.
        if (begin > from && cut > begin && cut <= begin + comment.size() + 1) cut = begin;
        lines.push_back(rest.substr(0, rest.find_last_not_of(' ', cut - 1) + 1));
        const std::size_t next = rest.find_first_not_of(' ', cut);
        if (next == std::string::npos) return lines;
        const bool goes_on = begin < next && hanging + 4 <= most &&
                             rest.substr(next, comment.size()) != comment;
        const std::size_t indent = goes_on && begin == from ? from : hanging;
        rest = std::string(indent, ' ') + (goes_on ? std::string(comment) + " " : "") +
               rest.substr(next);
    }
    lines.push_back(rest);
    return lines;
}

}  // namespace

std::vector<std::string> fold(std::string_view line, int width) {
    return cut_line(line, width, "");
}

std::vector<std::string> fold_code(std::string_view code, int width) {
    constexpr std::size_t kStep = 4;
    std::vector<std::string> lines = split_lines(code);
    const auto indent_of = [&](std::size_t line) {
        return std::min(lines[line].find_first_not_of(' '), lines[line].size());
    };
    std::vector<std::string> folded;
    for (std::size_t begin = 0, end = 0; begin < lines.size(); begin = end) {
        // Lines that are indented by more than a step continue the statement.
        const std::size_t indent = indent_of(begin);
        end = begin + 1;
        while (!lines[begin].empty() && end < lines.size() &&
               indent_of(end) > indent + kStep)
            ++end;
        const bool fits = std::all_of(
            lines.begin() + static_cast<std::ptrdiff_t>(begin),
            lines.begin() + static_cast<std::ptrdiff_t>(end),
            [&](const std::string& line) { return columns_of(line) <= width; });
        for (std::size_t i = begin; i < end; ++i) {
            if (i > begin && !fits)
                lines[i].replace(0, indent_of(i), indent + kStep, ' ');
            const bool documents = lines[i].find("///") != std::string::npos;
            for (std::string& part : cut_line(lines[i], width, documents ? "///" : "//"))
                folded.push_back(std::move(part));
        }
    }
    return folded;
}

std::string pad_right(std::string_view text, int width) {
    const int missing = std::max(0, width - columns_of(text));
    return std::string(text) + std::string(static_cast<std::size_t>(missing), ' ');
}

std::string pad_left(std::string_view text, int width) {
    const int missing = std::max(0, width - columns_of(text));
    return std::string(static_cast<std::size_t>(missing), ' ') + std::string(text);
}

std::vector<std::string> split_lines(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

}  // namespace lockstep
