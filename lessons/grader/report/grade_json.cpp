#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_words.hpp"

namespace lockstep::lessons {

using Json = nlohmann::ordered_json;

namespace {

Json text_or_null(const std::string& text) {
    return text.empty() ? Json() : Json(text);
}

std::string mark_word(Mark mark) {
    std::string word = mark_text(mark);
    std::replace(word.begin(), word.end(), ' ', '_');
    return word;
}

Json criterion_json(const CriterionReport& criterion) {
    const LessonStep place = read_lesson_step(criterion.lesson);
    return {{"id", criterion.id},
            {"title", criterion.title},
            {"mark", mark_word(criterion.mark)},
            {"earned", criterion.earned()},
            {"points", criterion.points},
            {"asked", text_or_null(criterion.asked)},
            {"measured", text_or_null(criterion.measured)},
            {"said", text_or_null(criterion.said)},
            {"lesson", text_or_null(place.lesson)},
            {"lesson_step", place.step ? Json(*place.step) : Json()}};
}

Json build_failure_json(const BuildFailure& failure) {
    return {{"file", text_or_null(failure.file)},
            {"line", failure.line > 0 ? Json(failure.line) : Json()},
            {"message", failure.message},
            {"lines", text_or_null(failure.lines)}};
}

}  // namespace

std::string grade_as_json(const GradeReport& report) {
    Json criteria = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        criteria.push_back(criterion_json(criterion));
    const auto& failure = report.build_failure;
    const Json document{
        {"assignment", report.slug},
        {"title", report.title},
        {"lockstep", report.version},
        {"finished", report.finished},
        {"built", !failure},
        {"build_failure", failure ? build_failure_json(*failure) : Json()},
        {"earned", report.earned()},
        {"points", report.points()},
        {"seconds", std::round(report.seconds * 1000) / 1000},
        {"criteria", std::move(criteria)},
        {"first", text_or_null(report.first)},
        {"remarks", Json(report.remarks)}};
    return document.dump(2) + "\n";
}

}  // namespace lockstep::lessons
