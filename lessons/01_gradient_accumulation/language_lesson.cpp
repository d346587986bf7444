#include "lessons/01_gradient_accumulation/language_lesson.hpp"

#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

LanguageLesson::LanguageLesson(const LessonOptions& options, Record& record)
    : Lesson(options, record),
      parts_(options.ranks.value_or(4)),
      language_(make_language_task(options, parts_)) {
    record.options.sum_length = language_->steps * language_->rows_per_step();
}

const RunReport& LanguageLesson::alone() {
    if (alone_) return *alone_;
    alone_ = train(*make_cluster(options(), 1),
                   language_training(
                       language_, options(), [](int) { return 0; }, parts_));
    record_language_inputs(record(), *language_);
    record_initial(record(), "language_model", *alone_);
    record_variant(record(), "accumulation", *alone_);
    return *alone_;
}

void LanguageLesson::check_against_one(Findings& found, const std::string& variant,
                                       const RunReport& report) {
    // Stored one behind the other: forward and backward through three layers, the sum of
    // devices' gradients, the parameter.
    const int stores = 12 + parts_;
    values_at_most(found, variant, parameter_difference(alone(), report),
                   RoundingBound{1e-3, 1e-10}.of(options().dtype, stores));
    record_variant(record(), variant, report);
}

void LanguageLesson::train_and_check(Findings& found, const std::string& variant,
                                     const MakeStrategy& strategy) {
    Training training = language_training(
        language_, options(), [](int rank) { return rank; }, 1);
    training.strategy = strategy;
    check_against_one(found, variant, train(*make_cluster(options(), parts_), training));
}

std::vector<Setting> language_settings(const LanguageDefaults& defaults) {
    std::vector<Setting> settings = {
        {"steps", "of the language model", Whole{1, 1'000'000, defaults.steps}},
        {"rows", "of a micro-batch of the language model",
         Whole{1, 65536, defaults.rows}},
        {"context", "characters that the next one is predicted from", Whole{1, 1024, 8}},
        {"width", "numbers that stand for a character", Whole{1, 4096, defaults.width}},
        {"hidden", "units of the hidden layer", Whole{1, 16384, defaults.hidden}},
        {"text_learning_rate", "of the language model", Real{0, 1e6, 0.2}},
    };
    return settings;
}

}  // namespace lockstep::lessons
