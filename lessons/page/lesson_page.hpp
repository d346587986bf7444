#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/findings.hpp"
#include "lessons/page/language.hpp"

namespace lockstep::lessons {

/// A part of a lesson's page under a heading "## Title {#name}". A section with a name is
/// a step: the lesson has an experiment with that name. A section without a name is shown
/// at the end.
struct PageSection {
    std::string name;
    std::string title;
    Document text;
    int line = 0;

    bool is_step() const { return !name.empty(); }
};

/// A lesson's page as its author writes it: with names instead of values, and with
/// directives (paragraphs that begin with `{{`). CONTRIBUTING.md shows how to write it.
class LessonPage : public Wording {
  public:
    /// Reads a page's text. `file` is the file's name: "lesson.zh.md" is in Chinese.
    /// Throws UsageError with file and line if the text is not a lesson's page.
    LessonPage(std::string file, std::string_view text);

    const std::string& file() const { return file_; }
    /// Returns "lessons/01_gradient_accumulation/lesson.md:34".
    std::string place(int line) const;

    const std::string& title() const { return title_; }
    const std::string& question() const { return question_; }
    /// Returns the value of a key ("minutes", "after") in the lines between "---" at the
    /// beginning of the page.
    std::string fact(const std::string& key) const;
    const std::vector<PageSection>& sections() const { return sections_; }
    /// Returns the sections that are steps.
    std::vector<const PageSection*> steps() const;

    std::string check_label(const std::string& name) const override;
    std::string written(const std::string& word) const override;
    Language language() const override;
    /// The titles of the record's runs, which {{title NAME: …}} gives.
    const std::map<std::string, std::string>& run_titles() const { return titles_; }

  private:
    void collect(const Document& blocks);

    std::string file_;
    std::string title_;
    std::string question_;
    std::map<std::string, std::string> facts_;
    std::vector<PageSection> sections_;
    std::map<std::string, std::string> labels_;
    std::map<std::string, std::string> words_;
    std::map<std::string, std::string> titles_;
};

/// Returns the page's facts in its language: "About 20 minutes. After: column-linear.
/// Assignment: column_row_linear." `after` is the text about the lessons before this one,
/// and `assignment` the text about its assignment.
std::string facts_text(const LessonPage& page, const std::string& after,
                       const std::string& assignment);

/// A paragraph `{{check same_weights: label}} The weights are …`, split into parts.
struct Directive {
    std::string word;   ///< "check"
    std::string name;   ///< "same_weights"; may have several words: "not numbers"
    std::string label;  ///< after the colon
    Words rest;         ///< after the braces
};

/// Returns the block's directive; none if the block is no directive.
std::optional<Directive> directive_of(const Block& block);

/// Code that an assignment asks students to write: a page shows it, or only names the
/// assignment.
enum class Solutions : std::uint8_t { hidden, shown };

/// Returns a step or section with its values filled in, its checks as sentences and its
/// predictions as questions. Throws UsageError with file and line if a name was not
/// given, or if a directive is unknown or not ended.
Document filled(const LessonPage& page, const Document& section, const Findings& found,
                Language language, Solutions solutions = Solutions::hidden);

}  // namespace lockstep::lessons
