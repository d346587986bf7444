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

/// A part of a lesson's page under a heading "## Title {#name}". One with a name is a
/// step: the lesson has an experiment of that name. One without is shown at the end.
struct PageSection {
    std::string name;
    std::string title;
    Document text;
    int line = 0;

    bool is_step() const { return !name.empty(); }
};

/// A lesson's page, as it is written: values still stand as names, and directives as
/// paragraphs that begin with `{{`. CONTRIBUTING.md says how one is written.
class LessonPage : public Wording {
  public:
    /// Reads a file's text; `file` is for sentences about it, and "lesson.zh.md" is in
    /// Chinese. Throws UsageError that names file and line if it is no lesson's page.
    LessonPage(std::string file, std::string_view text);

    const std::string& file() const { return file_; }
    /// "lessons/01_gradient_accumulation/lesson.md:34"
    std::string place(int line) const;

    const std::string& title() const { return title_; }
    const std::string& question() const { return question_; }
    /// What the page says of itself between lines "---" at its begin: "minutes", "after".
    std::string fact(const std::string& key) const;
    const std::vector<PageSection>& sections() const { return sections_; }
    /// Those that are steps.
    std::vector<const PageSection*> steps() const;

    std::string check_label(const std::string& name) const override;
    std::string written(const std::string& word) const override;
    Language language() const override;
    /// What a run is called in pictures of a record, by {{title NAME: …}}.
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

/// "About 20 minutes. After: column-linear. Assignment: column_row_linear.": what the
/// page says of itself, in its language. `after` is shown for the lessons before it, and
/// `assignment` for the assignment behind it.
std::string facts_text(const LessonPage& page, const std::string& after,
                       const std::string& assignment);

/// A paragraph `{{check same_weights: label}} The weights are …`, in parts.
struct Directive {
    std::string word;   ///< "check"
    std::string name;   ///< "same_weights"; may hold several words: "not numbers"
    std::string label;  ///< behind the colon
    Words rest;         ///< behind the braces
};

/// Returns the directive that the block is, or none.
std::optional<Directive> directive_of(const Block& block);

/// Says whether a page quotes the code that an assignment asks for, or names the
/// assignment.
enum class Solutions : std::uint8_t { hidden, shown };

/// Returns the step or the section with its values in place, its checks as sentences and
/// its predictions as questions. Throws UsageError that names file and line for a name
/// that was not given, a directive that there is not, or one that is not ended.
Document filled(const LessonPage& page, const Document& section, const Findings& found,
                Language language, Solutions solutions = Solutions::hidden);

}  // namespace lockstep::lessons
