#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lessons/page/document.hpp"

namespace lockstep::lessons {

/// An entry of the glossary: a word, or a letter with one of its meanings.
struct GlossaryEntry {
    std::vector<std::string> names;  ///< "send" and "recv"
    std::string where;               ///< "lesson 6", of a letter
    Document text;
};

struct GlossarySection {
    std::string title;
    std::vector<GlossaryEntry> entries;
};

/// Returns the sections of lessons/glossary.md: "## " begins a section, "### " a word,
/// and each row of a table with three columns is a letter.
std::vector<GlossarySection> read_glossary();

/// Returns the entries of this name: those that are spelt just so, else those that differ
/// in capitals, hyphens or spaces only ("AllReduce" is all-reduce).
std::vector<GlossaryEntry> entries_called(const std::vector<GlossarySection>& glossary,
                                          std::string_view name);

}  // namespace lockstep::lessons
