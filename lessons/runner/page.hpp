#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/report/record.hpp"
#include "src/run/run_report.hpp"
#include "src/text/table.hpp"

namespace lockstep::lessons {

/// Progress of something long; shown on a terminal only, once it has taken a second.
class Progress {
  public:
    virtual ~Progress() = default;
    /// `done` of the total so far; cheap, so it may be called often.
    virtual void advance(std::int64_t done) = 0;
};

/// What a step shows. On a terminal, text appears as it is written, wrapped to the
/// window; in a pipe to 80 columns. Virtual times, bytes and rounded numbers only: a
/// transcript is the same on every machine.
class Page {
  public:
    virtual ~Page() = default;

    /// A paragraph, wrapped; a blank line within begins another.
    virtual void text(const std::string& paragraph) = 0;
    /// Lines that stay as they are: formulas, small pictures. 76 columns fit everywhere
    /// but in a window narrower than that, where they are broken.
    virtual void verbatim(const std::string& lines) = 0;
    virtual void table(const Table& table) = 0;
    /// The code between `// lesson: anchor` and `// lesson: end` in the project's
    /// sources, with its file and line.
    virtual void quote(const std::string& anchor) = 0;
    virtual void timeline(const std::string& title, const RunReport& report) = 0;
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

}  // namespace lockstep::lessons
