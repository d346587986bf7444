#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lessons/page/document.hpp"
#include "lessons/page/figure.hpp"

namespace lockstep::lessons {

/// A choice that a question offers; its key is never shown.
struct Choice {
    std::string key;
    Document text;
};

/// A sentence on a wrong answer that many give.
struct Hint {
    double wrong = 0;    ///< of a number
    std::string choice;  ///< of a choice
    Words text;
};

/// A question that the learner answers before the run's figure is shown: a number, or one
/// of several choices.
struct Prediction {
    std::string name;
    Document question;
    Figure answer;  ///< unless there are choices
    std::vector<Choice> choices;
    std::string right_choice;  ///< its key
    std::vector<Hint> hints;
    Document working;  ///< how one gets there

    bool has_choices() const { return !choices.empty(); }
};

/// The letter by which a choice is typed: "a" for the first.
std::string letter_of(std::size_t choice);

/// "6,000 bytes"; of a choice its letter and, if it is a sentence, its words: "b, stage
/// 3".
std::string answer_text(const Prediction& prediction,
                        Language language = Language::english);

/// The unit in which a plain number is understood, "us"; empty if there is none. Times
/// are asked for in the unit in which the answer would be written.
std::string unit_asked_for(const Figure& answer, Language language = Language::english);

/// Says what a typed answer comes to.
struct Judgement {
    enum class Outcome { right, wrong, unreadable };
    Outcome outcome = Outcome::unreadable;
    const Hint* hint = nullptr;    ///< made for this wrong answer
    const char* remark = nullptr;  ///< for wrong answers of the kind, in English
};

/// Reads and judges an answer: "1,500", "1.5e3", "1/4", "25%", "150 KiB", "45.4 us". A
/// number is right within 1 %.
Judgement judge(const Prediction& prediction, std::string_view typed);

}  // namespace lockstep::lessons
