#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/prediction.hpp"
#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/notebook.hpp"

namespace lockstep::lessons {

/// Leads a learner through the steps of a lesson, a screen at a time: it shows as many
/// blocks as fit, then waits for a key. It asks for each prediction before it shows the
/// text that follows, and keeps the answer. Each step is run once. The window's size is
/// read for each screen. In a pipe everything is printed at once, with the answers.
class Reader {
  public:
    /// `waits`: whether to wait for keys; then input and output must be terminals.
    /// `notebook` must outlive this object.
    Reader(std::vector<Step> steps, TextLook look, bool waits, Notebook& notebook)
        : steps_(std::move(steps)), look_(look), waits_(waits), notebook_(notebook) {}

    /// Shows `opening`, then the steps from `first` up to `end`; runs earlier steps
    /// without output. Returns the step at which the learner leaves; none if everything
    /// was shown.
    std::optional<std::size_t> run(Document opening, std::size_t first, std::size_t end);

  private:
    /// A place in a lesson: a line of a block of a step.
    struct Position {
        std::size_t step = 0;
        std::size_t block = 0;
        std::size_t line = 0;
    };
    /// The position after a screen.
    struct Screen {
        Position next;
        bool asks = false;  ///< the block before `next` is an unanswered question
    };

    TextLook window_look() const;
    Document& page(std::size_t step);
    void run_to(std::size_t step);
    bool is_open(const Block& block) const;
    void settle(std::size_t step, std::size_t block, const Answer& answer);
    /// Shows the answers to questions that were answered in an earlier run; in a pipe,
    /// the answers to all questions.
    void settle_known(std::size_t step);

    std::optional<std::size_t> lead_through();
    /// Returns where the next screen begins after this key, or after an answer (no key).
    Position place_after(std::optional<Key> key, Position from, const Screen& screen);
    Screen show_screen(Position from, std::size_t most_lines);
    std::size_t rows() const;
    /// Asks the question at the end of a screen. Returns the key if the learner typed one
    /// instead of an answer; n and s then skip the question.
    std::optional<Key> ask(Position question);
    /// Waits for a key after a screen without a question; shows help if asked.
    Key key_behind(const Screen& screen);
    std::string prompt(Position next) const;
    std::string help() const;
    void tell(const std::string& sentence) const;

    std::vector<Step> steps_;
    TextLook look_;
    bool waits_;
    Notebook& notebook_;
    std::vector<Position> before_;  ///< beginnings of earlier screens, to go back to
    Document opening_;
    std::size_t first_ = 0, end_ = 0;
    std::vector<Document> pages_;    ///< the pages of the steps that have run
    std::set<std::string> settled_;  ///< questions whose answer is shown
};

/// Returns the text after an answered question: the learner's answer, the right answer,
/// and how to compute it.
Document outcome_of(const Prediction& prediction, const Answer& answer,
                    Language language);

/// Prints a page without questions, in the form that suits standard output.
void print_document(const Document& page);
/// Prints a command's results, and where the picture is if the command wrote one.
void print_found(Document page, const std::optional<std::filesystem::path>& picture);

}  // namespace lockstep::lessons
