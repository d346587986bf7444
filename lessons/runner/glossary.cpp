#include "lessons/runner/glossary.hpp"

#include <algorithm>
#include <cctype>

#include "lessons/page/markdown.hpp"
#include "lessons/runner/pages.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

/// Returns the parts of `text` between separators, without white space around them.
std::vector<std::string> pieces_of(std::string_view text, std::string_view separator) {
    std::vector<std::string> pieces;
    while (true) {
        const std::size_t end = std::min(text.find(separator), text.size());
        pieces.emplace_back(trimmed(text.substr(0, end)));
        if (end == text.size()) return pieces;
        text.remove_prefix(end + separator.size());
    }
}

std::string folded(std::string_view name) {
    std::string letters;
    for (const unsigned char letter : name)
        if (letter > 127 || std::isalnum(letter) != 0)
            letters += static_cast<char>(std::tolower(letter));
    return letters;
}

}  // namespace

std::vector<GlossarySection> read_glossary() {
    std::vector<GlossarySection> sections;
    bool in_entry = false;
    for (Block& block : read_markdown(text_called("glossary.md"))) {
        const auto* heading = block.as<Heading>();
        const auto* letters = block.as<TableBlock>();
        if (heading && heading->level == 2) {
            sections.push_back({plain(heading->title), {}});
            in_entry = false;
        } else if (heading && heading->level == 3) {
            sections.back().entries.push_back(
                {pieces_of(plain(heading->title), ","), "", {}});
            in_entry = true;
        } else if (letters) {
            for (const std::vector<Words>& row : letters->rows)
                sections.back().entries.push_back({pieces_of(plain(row.at(0)), ","),
                                                   plain(row.at(2)),
                                                   {{Paragraph{row.at(1)}}}});
        } else if (in_entry) {
            sections.back().entries.back().text.push_back(std::move(block));
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
