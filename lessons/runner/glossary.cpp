#include "lessons/runner/glossary.hpp"

#include <algorithm>
#include <cctype>

#include "src/text/numbers.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

/// Returns the pieces of `text` between separators, without white space around them.
std::vector<std::string> pieces_of(std::string_view text, std::string_view separator) {
    std::vector<std::string> pieces;
    while (true) {
        const std::size_t end = std::min(text.find(separator), text.size());
        pieces.emplace_back(trimmed(text.substr(0, end)));
        if (end == text.size()) return pieces;
        text.remove_prefix(end + separator.size());
    }
}

/// Returns a paragraph without the marks of Markdown; of a link its text stays.
std::string plain_text(std::string_view markdown) {
    std::string text;
    std::size_t bracket = std::string::npos;  // where an open link's text began
    for (std::size_t i = 0; i < markdown.size(); ++i) {
        const char letter = markdown[i];
        if (letter == '[') {
            bracket = text.size();
        } else if (letter == ']' && bracket != std::string::npos) {
            bracket = std::string::npos;
            if (markdown.substr(i + 1, 1) == "(") i = markdown.find(')', i);
        } else if (letter != '`' && letter != '*') {
            text += letter;
        }
    }
    return text;
}

/// Returns a letter's entry, made of a table's row.
GlossaryEntry letter_of(std::string_view row) {
    const std::vector<std::string> cells = pieces_of(row, "|");
    return {pieces_of(cells.at(1), ","), cells.at(3), {plain_text(cells.at(2))}};
}

std::string folded(std::string_view name) {
    std::string letters;
    for (const unsigned char letter : name)
        if (letter > 127 || std::isalnum(letter) != 0)
            letters += static_cast<char>(std::tolower(letter));
    return letters;
}

}  // namespace

std::vector<GlossarySection> read_glossary(std::string_view page) {
    std::vector<GlossarySection> sections;
    bool in_entry = false;
    bool in_table = false;  // below the line between its head and its rows
    for (const std::string& line : split_lines(page)) {
        in_table = in_table && line.starts_with("|");
        if (line.starts_with("## ")) {
            sections.push_back({line.substr(3), {}});
            in_entry = false;
        } else if (line.starts_with("### ")) {
            sections.back().entries.push_back({pieces_of(line.substr(4), ","), "", {}});
            in_entry = true;
        } else if (line.starts_with("|--")) {
            in_table = true;
        } else if (in_table) {
            sections.back().entries.push_back(letter_of(line));
        } else if (in_entry && !line.empty()) {
            sections.back().entries.back().paragraphs.push_back(plain_text(line));
        }
    }
    return sections;
}

std::vector<GlossaryEntry> entries_called(const std::vector<GlossarySection>& glossary,
                                          std::string_view name) {
    std::vector<GlossaryEntry> exact;
    std::vector<GlossaryEntry> alike;
    for (const GlossarySection& section : glossary)
        for (const GlossaryEntry& entry : section.entries) {
            const auto is_called = [&](const std::string& each) { return each == name; };
            const auto is_alike = [&](const std::string& each) {
                return folded(each) == folded(name);
            };
            if (std::ranges::any_of(entry.names, is_called)) exact.push_back(entry);
            if (std::ranges::any_of(entry.names, is_alike)) alike.push_back(entry);
        }
    return exact.empty() ? alike : exact;
}

}  // namespace lockstep::lessons
