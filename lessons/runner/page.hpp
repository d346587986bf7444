#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lessons/runner/quote.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/chart/chart.hpp"
#include "src/report/record.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

/// The page that a step shows. On a terminal, text appears as it is written, wrapped to
/// the window; in a pipe to 80 columns. It has virtual times, bytes and rounded numbers
/// only, so that a transcript is the same on every machine.
class Page {
  public:
    virtual ~Page() = default;

    /// Shows a paragraph, wrapped; a blank line within begins another.
    virtual void text(const std::string& paragraph) = 0;
    /// Shows lines as they are: formulas, small pictures. 76 columns fit everywhere
    /// but in a window narrower than that, which breaks them.
    virtual void verbatim(const std::string& lines) = 0;
    virtual void table(const Table& table) = 0;
    /// Shows the code between `// lesson: anchor` and `// lesson: end` in the project's
    /// sources, with its file and line.
    virtual void quote(const std::string& anchor) = 0;
    /// A picture: a run's timeline (src/report/timeline.hpp) or a schedule
    /// (src/pipeline/picture.hpp), in colour on a terminal that has colours.
    virtual void chart(const Chart& chart) = 0;
    /// Asks for a number before it is shown: on a terminal the learner types one (Enter
    /// passes); in a pipe the question and the answer are printed. `working` is the line
    /// of arithmetic that leads to the answer; a plain number has no unit, "". An answer
    /// within 1 % is right.
    virtual void predict(const std::string& question, double answer,
                         const std::string& unit, const std::string& working) = 0;
    /// Shows a check with its figure, bound and verdict, and records it. In a pipe a
    /// passed check whose figure is rounding shows the bound alone, since its last digits
    /// differ from machine to machine; the record has the figure.
    virtual void check(const Check& check) = 0;
    /// `total` is what advance() will count to.
    virtual std::unique_ptr<Progress> progress(const std::string& what,
                                               std::int64_t total) = 0;
};

/// Shows nothing and records checks: for --json, and for steps that run only because a
/// later one needs them.
class SilentPage : public Page {
  public:
    explicit SilentPage(Record& record) : record_(record) {}

    void text(const std::string&) override {}
    void verbatim(const std::string&) override {}
    void table(const Table&) override {}
    /// Throws as find_quote does.
    void quote(const std::string& anchor) override { find_quote(anchor); }
    void chart(const Chart&) override {}
    void predict(const std::string&, double, const std::string&,
                 const std::string&) override {}
    void check(const Check& check) override { record_.checks.push_back(check); }
    std::unique_ptr<Progress> progress(const std::string& what,
                                       std::int64_t total) override {
        return show_progress(what, total);
    }

  private:
    Record& record_;
};

}  // namespace lockstep::lessons
