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

/// Leads a learner through the steps of a lesson, a window at a time: as many blocks as
/// fit, then a key. Predictions are asked before what stands behind them is shown, and
/// their answers kept. No step is run twice. The window's size is looked up for each
/// screen. In a pipe all is printed at once, with the answers.
class Reader {
  public:
    /// `waits` for keys; both ends must be terminals then. `notebook` outlives it.
    Reader(std::vector<Step> steps, TextLook look, bool waits, Notebook& notebook)
        : steps_(std::move(steps)), look_(look), waits_(waits), notebook_(notebook) {}

    /// Shows `opening`, then the steps from the one at `first` up to the one at `end`,
    /// and runs those before unseen. Returns the step at which the learner leaves before
    /// the end; none if all was shown.
    std::optional<std::size_t> run(Document opening, std::size_t first, std::size_t end);

  private:
    /// A place in a lesson: a line of a block of a step.
    struct Position {
        std::size_t step = 0;
        std::size_t block = 0;
        std::size_t line = 0;
    };
    /// The end of a screen.
    struct Screen {
        Position next;
        bool asks = false;  ///< the block before `next` is a question without an answer
    };

    TextLook window_look() const;
    Document& page(std::size_t step);
    void run_to(std::size_t step);
    bool is_open(const Block& block) const;
    void settle(std::size_t step, std::size_t block, const Answer& answer);
    /// Settles the questions that were answered before; in a pipe all.
    void settle_known(std::size_t step);

    std::optional<std::size_t> lead_through();
    /// Returns where the screen begins that a key asks for, or an answer.
    Position place_after(std::optional<Key> key, Position from, const Screen& screen);
    Screen show_screen(Position from, std::size_t most_lines);
    std::size_t rows() const;
    /// Asks the question that ends a screen. Returns what the learner wants instead of an
    /// answer, if that is so; whoever goes on has passed.
    std::optional<Key> ask(Position question);
    /// Waits for a key behind a screen that ends with no question; help is given.
    Key key_behind(const Screen& screen);
    std::string prompt(Position next) const;
    std::string help() const;
    void tell(const std::string& sentence) const;

    std::vector<Step> steps_;
    TextLook look_;
    bool waits_;
    Notebook& notebook_;
    std::vector<Position> before_;  ///< where screens began that one can go back to
    Document opening_;
    std::size_t first_ = 0, end_ = 0;
    std::vector<Document> pages_;    ///< of the steps that were run
    std::set<std::string> settled_;  ///< questions whose answer stands on the page
};

/// Returns what stands behind a question once it is answered: what was answered, what is
/// right, and how one gets there.
Document outcome_of(const Prediction& prediction, const Answer& answer,
                    Language language);

/// Prints a page that has no questions, as standard output wants it.
void print_document(const Document& page);
/// Prints what a command has found, and where the picture of it is, if it has written
/// one.
void print_found(Document page, const std::optional<std::filesystem::path>& picture);

}  // namespace lockstep::lessons
