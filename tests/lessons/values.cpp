// Prints a lesson's values.txt: each name to which the lesson's experiments give a value,
// and the value as the page shows it.
//
// Arguments: the lesson's slug, and "full" for full checking.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "lessons/runner/lesson.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

/// Removes line numbers, because lines of sources change with every commit.
std::string without_line_numbers(const std::string& text) {
    static const std::regex number(R"((\.[ch]pp):\d+)");
    return std::regex_replace(text, number, "$1");
}

/// Puts text of several lines below its name.
std::string text_of_words(const std::string& words) {
    std::string text = without_line_numbers(words);
    if (text.find('\n') == text.npos) return text;
    std::string block;
    for (const std::string& line : split_lines(text))
        block += line.empty() ? "\n    |" : "\n    | " + line;
    return block;
}

std::string text_of_value(const Value& value) {
    if (const auto* figure = std::get_if<Figure>(&value)) return text_of(*figure);
    if (const auto* words = std::get_if<std::string>(&value))
        return text_of_words(*words);
    return std::get<bool>(value) ? "yes" : "no";
}

std::string text_of_check(const MadeCheck& made) {
    if (!made.compared) return "not compared";
    Figure figure = made.unit, bound = made.unit;
    figure.value = made.check.figure;
    bound.value = made.check.bound;
    return fmt::format("{}, {} {}{}", text_of(figure),
                       made.check.equality ? "to be" : "at most", text_of(bound),
                       made.check.passed ? "" : ": FAILED");
}

/// Describes a picture by numbers that change if a box or a curve is lost.
std::string text_of_picture(const Picture& picture) {
    const Drawing drawing = (*picture.draw)("");
    if (const auto* mesh = std::get_if<MeshPicture>(&drawing)) {
        std::size_t labels = 0;
        for (const auto& of_rank : mesh->labels)
            labels += of_rank.size();
        return fmt::format("picture of {} devices, {} labels", mesh->shape.ranks(),
                           labels);
    }
    std::size_t rows = 0, boxes = 0, levels = 0, arrows = 0;
    const Chart& chart = std::get<Chart>(drawing);
    for (const Panel& panel : chart.panels) {
        arrows += panel.arrows.size();
        for (const RowGroup& group : panel.groups) {
            rows += group.rows.size();
            for (const Row& row : group.rows)
                boxes += row.boxes.size();
            for (const Strip& strip : group.strips)
                levels += strip.levels.size();
        }
    }
    return fmt::format("picture of {} rows, {} boxes, {} arrows, {} levels", rows, boxes,
                       arrows, levels);
}

/// Returns the rows called `name` if there are any below `prefix`, else null.
const std::vector<std::unique_ptr<Findings>>* rows_of(const Findings& found,
                                                      const std::string& prefix,
                                                      const std::string& name) {
    const std::string begin = prefix + name + ".";
    const auto names = found.names();
    const auto first = names.lower_bound(begin);
    const bool here = first != names.end() && first->first.starts_with(begin);
    return here ? found.list(name) : nullptr;
}

/// Returns the names below `prefix` that are not names of rows: "time", "early.time".
std::set<std::string> names_of(const Findings& found, const std::string& prefix) {
    std::set<std::string> names;
    for (const auto& [whole, at] : found.names()) {
        const std::string name = whole.substr(std::min(prefix.size(), whole.size()));
        const std::size_t dot = name.find('.');
        if (dot == name.npos || !rows_of(found, prefix, name.substr(0, dot)))
            names.insert(name);
    }
    return names;
}

std::string text_of_name(const Findings& found, const std::string& name) {
    if (const MadeCheck* made = found.check(name)) return text_of_check(*made);
    if (const Picture* picture = found.picture(name)) return text_of_picture(*picture);
    return text_of_value(*found.value(name));
}

void print(const Findings& found, const std::string& prefix, const std::string& name) {
    const auto* rows = rows_of(found, prefix, name);
    if (!rows) {
        fmt::print("{}{}: {}\n", prefix, name, text_of_name(found, name));
        return;
    }
    const std::string inner = prefix + name + ".";
    for (const auto& row : *rows) {
        std::vector<std::string> cells, lists;
        for (const std::string& each : names_of(*row, inner))
            if (rows_of(*row, inner, each))
                lists.push_back(each);
            else
                cells.push_back(each + " " + text_of_name(*row, each));
        fmt::print("{}{}: {}\n", prefix, name, fmt::join(cells, "; "));
        for (const std::string& list : lists)
            print(*row, inner, list);
    }
}

void print_lesson(const LessonEntry& lesson, sim::CheckLevel check) {
    LessonOptions options;
    options = resolved(understood(options, lesson), lesson.default_ranks, {});
    options.check = check;
    Record record;
    record.options.ranks = options.ranks.value_or(lesson.default_ranks);
    record.options.dtype = options.dtype;
    const auto made = lesson.make(options, record);
    LessonSteps steps(lesson, *made, Language::english, record);
    std::set<std::string> before;
    for (const Step& step : steps.steps()) {
        step.run();
        fmt::print("\n# {}\n", step.title);
        for (const std::string& name : names_of(steps.found(), ""))
            if (before.insert(name).second) print(steps.found(), "", name);
    }
}

}  // namespace

}  // namespace lockstep::lessons

int main(int count, char** arguments) {
    using namespace lockstep;
    try {
        const std::string slug = count > 1 ? arguments[1] : "";
        lessons::print_lesson(lessons::find_lesson(slug),
                              count > 2 ? sim::CheckLevel::full : sim::CheckLevel::cheap);
    } catch (const std::exception& error) {
        fmt::print(stderr, "values: {}\n", error.what());
        return 1;
    }
    return 0;
}
