#include <cmath>
#include <nlohmann/json.hpp>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_words.hpp"

namespace lockstep::lessons {

using Json = nlohmann::ordered_json;

namespace {

Json test_json(const CriterionReport& criterion, std::size_t number) {
    std::string output = mark_text(criterion.mark);
    const std::string details = details_text(criterion);
    if (!details.empty()) output += "\n" + details;
    // Without a status, a test of no points would count as passed.
    return {{"score", criterion.earned()},
            {"max_score", criterion.points},
            {"status", criterion.mark == Mark::passed ? "passed" : "failed"},
            {"name", name_text(criterion)},
            {"name_format", "text"},
            {"number", std::to_string(number)},
            {"output", output},
            {"output_format", "text"},
            {"visibility", "visible"}};
}

}  // namespace

std::string grade_as_gradescope(const GradeReport& report) {
    Json tests = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        tests.push_back(test_json(criterion, tests.size() + 1));
    const Json document{{"score", report.earned()},
                        {"execution_time", static_cast<int>(std::ceil(report.seconds))},
                        {"output", whole_text(report)},
                        {"output_format", "text"},
                        {"visibility", "visible"},
                        {"extra_data",
                         {{"assignment", report.slug},
                          {"lockstep", report.version},
                          {"finished", report.finished},
                          {"built", !report.build_failure}}},
                        {"tests", std::move(tests)}};
    return document.dump(2) + "\n";
}

}  // namespace lockstep::lessons
