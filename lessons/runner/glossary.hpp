#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lessons/page/document.hpp"

namespace lockstep::lessons {

/// An entry of the glossary: a word, or one meaning of a letter.
struct GlossaryEntry {
    std::vector<std::string> names;  ///< "send" and "recv"
    std::string where;               ///< for a letter: "lesson 6"
    Document text;
};

struct GlossarySection {
    std::string title;
    std::vector<GlossaryEntry> entries;
};

/// Reads the sections of lessons/glossary.md: "## " begins a section, "### " a word, and
/// each row of a table with three columns is a letter.
std::vector<GlossarySection> read_glossary();

/// Returns the entries with exactly this name. If there are none, returns those that
/// differ only in capitals, hyphens or spaces ("AllReduce" is all-reduce).
std::vector<GlossaryEntry> entries_called(const std::vector<GlossarySection>& glossary,
                                          std::string_view name);

}  // namespace lockstep::lessons
