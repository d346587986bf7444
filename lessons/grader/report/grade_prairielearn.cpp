#include <nlohmann/json.hpp>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_words.hpp"

namespace lockstep::lessons {

using Json = nlohmann::ordered_json;

namespace {

Json not_gradable(const GradeReport& report) {
    return {{"gradable", false},
            {"format_errors", {build_error_text(*report.build_failure)}},
            {"message", whole_text(report)}};
}

Json test_json(const CriterionReport& criterion) {
    Json test{{"name", name_text(criterion)},
              {"points", criterion.earned()},
              {"max_points", criterion.points}};
    if (!criterion.asked.empty()) test["description"] = "Asked: " + criterion.asked;
    std::string message = mark_text(criterion.mark);
    if (!criterion.measured.empty()) message += "\nmeasured: " + criterion.measured;
    const std::string command = lesson_command(criterion.lesson);
    if (!command.empty()) message += "\ntaught in: " + command;
    test["message"] = message;
    if (!criterion.said.empty()) test["output"] = criterion.said;
    return test;
}

}  // namespace

std::string grade_as_prairielearn(const GradeReport& report) {
    if (report.build_failure) return not_gradable(report).dump(2) + "\n";
    Json tests = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        tests.push_back(test_json(criterion));
    const double score =
        report.points() > 0 ? static_cast<double>(report.earned()) / report.points() : 0;
    Json document{{"gradable", true}, {"score", score}};
    document["message"] = points_text(report.earned(), report.points());
    const std::string whole = whole_text(report);
    if (!whole.empty()) document["output"] = whole;
    document["tests"] = std::move(tests);
    return document.dump(2) + "\n";
}

}  // namespace lockstep::lessons
