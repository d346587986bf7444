#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/report/record.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// A learner's answer to a prediction. It cannot change once the figure has been shown.
struct Answer {
    enum class Outcome { right, right_later, wrong, passed };
    std::vector<std::string> typed;  ///< each attempt
    Outcome outcome = Outcome::passed;
    std::string figure;  ///< the result
};

/// The results of a lesson's predictions.
struct Score {
    int right = 0;        ///< at the first attempt
    int right_later = 0;  ///< at the second attempt
    int wrong = 0;
    int passed = 0;

    int asked() const { return right + right_later + wrong + passed; }
};

/// Notes on a lesson's runs with the same options: the answers to its predictions and,
/// after a run to the end, the SHA-256 of the run's metrics.json.
struct LessonNotes {
    std::map<std::string, Answer> answers;
    std::string record;
};

/// A learner's progress in a lesson: the step to continue at, and notes, in a file.
/// Without a file, the notebook is lost when the program ends.
class Notebook {
  public:
    Notebook() = default;
    /// Reads the file if it exists; an unreadable part counts as empty. `key` identifies
    /// the options of the run, because with other options a prediction has another
    /// answer.
    explicit Notebook(std::filesystem::path file, std::string key = "");

    /// Returns the step to continue at, from 0; none if the lesson was not begun.
    std::optional<std::size_t> step() const;
    bool is_done() const { return done_; }
    const Answer* answer(const std::string& prediction) const;
    Score score() const;
    /// The notes on all runs, by the key of their options.
    const std::map<std::string, LessonNotes>& notes() const { return notes_; }

    // Each of these writes the file at once. If that fails, the lesson continues.
    void reach(std::size_t step);
    void finish(const std::string& metrics);
    void put(const std::string& prediction, Answer answer);

  private:
    void write() const;

    std::filesystem::path file_;
    std::string key_;
    std::size_t step_ = 0;
    bool done_ = false;
    std::map<std::string, LessonNotes> notes_;
};

/// Returns a run's key in the notebook: "4 ranks, f32, seed 0, classroom".
std::string notebook_key(const RunOptions& run);

Score score_of(const std::map<std::string, Answer>& answers);

/// Returns notes as JSON: the predictions, the results, the score, the record.
Json json_of(const LessonNotes& notes);

/// Returns the file of a lesson's notebook: in $XDG_STATE_HOME/lockstep, or in
/// ~/.local/state/lockstep; empty if neither folder is known.
std::filesystem::path notebook_file(const std::string& slug);

}  // namespace lockstep::lessons
