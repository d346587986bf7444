#include <cmath>

#include <fmt/format.h>

#include "lessons/runner/page_text.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

bool is_right(double typed, double answer) {
    constexpr double kTolerance = 0.01;
    return std::abs(typed - answer) <= kTolerance * std::abs(answer);
}

/// "25%" and "25 %" are 25 where the unit is "%".
std::string without_unit(const std::string& line, const std::string& unit) {
    std::string_view text = trimmed(line);
    if (!unit.empty() && text.ends_with(unit)) text.remove_suffix(unit.size());
    return std::string(trimmed(text));
}

/// "6 messages"; a plain number where there is no unit.
std::string with_unit(double value, const std::string& unit) {
    return number_text(value) + (unit.empty() ? "" : " " + unit);
}

}  // namespace

void TextPage::predict(const std::string& question, double answer,
                       const std::string& unit, const std::string& working) {
    show_labelled("Predict:", question, Look::strong);
    const std::optional<double> typed = ask_ ? ask_number(unit) : std::nullopt;
    // The learner sees what was typed already; a page shown again has to say it.
    if (typed) shown_ += fmt::format("Your answer: {}\n", with_unit(*typed, unit));

    const std::string result = with_unit(answer, unit);
    if (typed && is_right(*typed, answer))
        show_labelled("Right:", result, Look::good);
    else
        show_labelled(typed ? "Not so:" : "Answer:", result, Look::strong);
    std::string lines;
    for (const std::string& line : split_lines(working))
        for (const std::string& part : fold("    " + line, style_.width))
            lines += part + "\n";
    show(lines + "\n");
}

std::optional<double> TextPage::ask_number(const std::string& unit) {
    const std::string in_unit = unit.empty() ? "" : " in " + unit;
    std::string prompt = fmt::format("Your answer{} (Enter passes): ", in_unit);
    constexpr int kAttempts = 2;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
        const std::optional<std::string> line = ask_(prompt);
        if (!line || trimmed(*line).empty()) return std::nullopt;
        if (const auto number = parse_typed_number(without_unit(*line, unit)))
            return number;
        prompt = fmt::format("A number such as 1,500 or 1.5e3{}: ",
                             unit.empty() ? "" : "," + in_unit);
    }
    return std::nullopt;
}

}  // namespace lockstep::lessons
