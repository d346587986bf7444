#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lessons/runner/lesson.hpp"
#include "lessons/runner/page_text.hpp"

namespace lockstep::lessons {

/// Leads through the steps of a lesson, printing each one's page. No step is run twice: b
/// shows the text of the page before again.
class Stepper {
  public:
    /// `waits` for a key after each step, and asks for predictions; both ends must be
    /// terminals.
    Stepper(std::vector<Step> steps, PageStyle style, bool waits, Record& record)
        : steps_(std::move(steps)), style_(style), waits_(waits), record_(record) {}

    /// Runs from the first step to the last. Returns false if the learner quits before
    /// every step was run.
    bool run();

    /// Shows one step, from 1, and runs those before it unseen. Does not wait.
    void run_only(int step);

  private:
    void show(std::size_t index);
    std::string prompt(std::size_t index) const;

    std::vector<Step> steps_;
    PageStyle style_;
    bool waits_;
    Record& record_;
    std::vector<std::string> pages_;  ///< the text of those that were run
};

}  // namespace lockstep::lessons
