#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/report/record.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// A learner's answer to a prediction. It is locked once the figure has been shown.
struct Answer {
    enum class Outcome { right, right_later, wrong, passed };
    std::vector<std::string> typed;  ///< each try
    Outcome outcome = Outcome::passed;
    std::string figure;  ///< what came out
};

/// How the predictions of a lesson went.
struct Score {
    int right = 0;        ///< at the first try
    int right_later = 0;  ///< at the second
    int wrong = 0;
    int passed = 0;

    int asked() const { return right + right_later + wrong + passed; }
};

/// Notes on one way to run a lesson: the answers to its predictions, and, once it
/// has been run to its end, the SHA-256 of its metrics.json.
struct LessonNotes {
    std::map<std::string, Answer> answers;
    std::string record;
};

/// Notes on a learner's way through a lesson: the step to go on at, and notes, in
/// a file of its own. One without a file forgets all at its end.
class Notebook {
  public:
    Notebook() = default;
    /// Reads the file, if it is there; what cannot be read counts as nothing. `key` says
    /// with which options the lesson is run: answers to other figures are others.
    explicit Notebook(std::filesystem::path file, std::string key = "");

    /// Returns the step to go on at, from 0; none if there is none to go back to.
    std::optional<std::size_t> step() const;
    bool is_done() const { return done_; }
    const Answer* answer(const std::string& prediction) const;
    Score score() const;
    /// Those of all options, by key.
    const std::map<std::string, LessonNotes>& notes() const { return notes_; }

    // Each is written to the file at once. A file that cannot be written is no reason to
    // stop a lesson.
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

/// Returns what tells answers to other figures apart: "4 ranks, f32, seed 0, classroom".
std::string notebook_key(const RunOptions& run);

Score score_of(const std::map<std::string, Answer>& answers);

/// Returns notes as JSON: what was predicted, what came out, the score, the record.
Json json_of(const LessonNotes& notes);

/// Returns the file of a lesson's notebook: in $XDG_STATE_HOME/lockstep, or in
/// ~/.local/state/lockstep; empty if there is neither.
std::filesystem::path notebook_file(const std::string& slug);

}  // namespace lockstep::lessons
