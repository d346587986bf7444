#include "lessons/runner/page_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/chart/text.hpp"
#include "src/text/numbers.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kNarrowestChart = 40;
constexpr int kWidestText = 100;  // longer lines are hard to read

std::vector<std::string> folded(std::string_view text, int width) {
    std::vector<std::string> lines;
    for (const std::string& line : split_lines(text))
        for (std::string& part : fold(line, width))
            lines.push_back(std::move(part));
    return lines;
}

bool is_right(double typed, double answer) {
    constexpr double kTolerance = 0.01;
    return std::abs(typed - answer) <= kTolerance * std::abs(answer);
}

/// "25%" and "25 %" are 25 if the unit is "%".
std::string without_unit(const std::string& line, const std::string& unit) {
    std::string_view text = trimmed(line);
    if (!unit.empty() && text.ends_with(unit)) text.remove_suffix(unit.size());
    return std::string(trimmed(text));
}

/// Returns "6 messages", or a plain number if there is no unit.
std::string with_unit(double value, const std::string& unit) {
    return number_text(value) + (unit.empty() ? "" : " " + unit);
}

}  // namespace

TextPage::TextPage(PageStyle style, Record& record, TextSink sink, Ask ask)
    : style_(style), record_(record), sink_(std::move(sink)), ask_(std::move(ask)) {}

void TextPage::heading(const std::string& title) {
    std::vector<std::string> lines = wrap(title, text_width());
    int width = 0;
    for (const std::string& line : lines)
        width = std::max(width, columns_of(line));
    lines.emplace_back();
    for (int i = 0; i < width; ++i)
        lines.back() += "─";
    show_lines(lines, Look::strong);
}

void TextPage::text(const std::string& paragraph) {
    // A blank line within begins another paragraph.
    std::string rest = paragraph;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find("\n\n"), rest.size());
        show_lines(wrap(rest.substr(0, end), text_width()));
        rest.erase(0, end + 2);
    }
}

void TextPage::verbatim(const std::string& lines) {
    show_lines(folded(lines, style_.width));
}

void TextPage::table(const Table& table) {
    const TableText text = table_text(table, text_width());
    std::string lines;
    for (const std::string& line : text.head)
        lines += dressed(line, Look::strong) + "\n";
    for (const std::string& line : text.body)
        lines += line + "\n";
    show(lines + "\n");
}

void TextPage::quote(const std::string& anchor) {
    constexpr int kIndent = 2;
    const Quote& quote = find_quote(anchor);
    std::string lines;
    for (const std::string& line :
         fold(fmt::format("{}:{}", quote.file, quote.line), style_.width))
        lines += dressed(line, Look::faint) + "\n";
    for (const std::string& line : fold_code(quote.code, style_.width - kIndent))
        lines += (line.empty() ? line : pad_right("", kIndent) + line) + "\n";
    show(lines + "\n");
}

void TextPage::chart(const Chart& chart) {
    std::string drawing =
        chart_text(chart, {std::max(style_.width, kNarrowestChart), style_.colour, ""});
    drawing.erase(drawing.find_last_not_of('\n') + 1);
    show(drawing + "\n\n");
}

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

void TextPage::check(const Check& check) {
    record_.checks.push_back(check);
    in_checks_ = false;  // checks stand without blank lines between them
    const std::string label = check.passed ? "ok    " : "FAILED";
    show_labelled(label, check.name + ": " + verdict_text(check, style_.rounding),
                  check.passed ? Look::good : Look::bad);
    in_checks_ = true;
}

std::unique_ptr<Progress> TextPage::progress(const std::string& what,
                                             std::int64_t total) {
    return show_progress(what, total);
}

int TextPage::text_width() const {
    return std::min(style_.width, kWidestText);
}

void TextPage::end() {
    if (in_checks_) show("");
}

void TextPage::show(const std::string& text) {
    const std::string all = in_checks_ ? "\n" + text : text;
    in_checks_ = false;
    shown_ += all;
    sink_(all);
}

void TextPage::show_lines(const std::vector<std::string>& lines, Look look) {
    std::string all;
    for (const std::string& line : lines)
        all += dressed(line, look) + "\n";
    show(all + "\n");
}

void TextPage::show_labelled(const std::string& label, const std::string& text,
                             Look look) {
    const int indent = columns_of(label) + 2;
    std::string all;
    for (const std::string& line : wrap(text, text_width() - indent)) {
        all += all.empty() ? dressed(label, look) + "  " : pad_right("", indent);
        all += line + "\n";
    }
    show(all);
}

std::string TextPage::dressed(const std::string& text, Look look) const {
    if (!style_.colour || look == Look::plain || text.empty()) return text;
    const char* code = look == Look::strong  ? "1"
                       : look == Look::faint ? "2"
                       : look == Look::good  ? "32"
                                             : "1;31";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

std::string verdict_text(const Check& check, bool rounding) {
    const std::string figure = number_text(check.figure);
    const std::string bound = number_text(check.bound);
    if (check.equality) return check.passed ? figure : figure + " instead of " + bound;
    if (!check.passed) return figure + ", but at most " + bound + " is allowed";
    const bool whole = check.figure == std::floor(check.figure) && check.figure != 0;
    return rounding || whole ? figure + ", at most " + bound : "at most " + bound;
}

}  // namespace lockstep::lessons
