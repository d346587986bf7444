#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/figure.hpp"

namespace lockstep::lessons {

/// An option of a question; its key is never shown.
struct Choice {
    std::string key;
    Document text;
};

/// A remark on a wrong answer that many learners give.
struct Hint {
    double wrong = 0;    ///< the wrong number
    std::string choice;  ///< the wrong option
    Words text;
};

/// A question that the learner answers before the run's figure is shown: either a number
/// or one of several options.
struct Prediction {
    std::string name;
    Document question;
    Figure answer;  ///< the right number, if there are no choices
    std::vector<Choice> choices;
    std::string right_choice;  ///< the key of the right choice
    std::vector<Hint> hints;
    Document working;  ///< the way to the answer

    bool has_choices() const { return !choices.empty(); }
};

/// Returns the letter of an option: "a" for the first.
std::string letter_of(std::size_t choice);

/// Returns "6,000 bytes". For an option, returns the letter and, if the option is one
/// paragraph, its words: "b, stage 3".
std::string answer_text(const Prediction& prediction,
                        Language language = Language::english);

/// Returns the unit that a typed number has by default, such as "us"; empty if it has
/// none. For a time, it is the unit in which the answer is written.
std::string unit_asked_for(const Figure& answer, Language language = Language::english);

/// The verdict on a typed answer.
struct Judgement {
    enum class Outcome { right, wrong, unreadable };
    Outcome outcome = Outcome::unreadable;
    const Hint* hint = nullptr;    ///< the hint for this wrong answer
    const char* remark = nullptr;  ///< a general remark, in English
};

/// Reads and judges an answer: "1,500", "1.5e3", "1/4", "25%", "150 KiB", "45.4 us". A
/// number is right if it is within 1 %.
Judgement judge(const Prediction& prediction, std::string_view typed);

}  // namespace lockstep::lessons
