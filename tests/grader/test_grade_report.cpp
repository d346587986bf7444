#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_report.hpp"
#include "tests/catch.hpp"

using namespace lockstep::lessons;

TEST_CASE("A report has the points of the criteria that passed", "[grader]") {
    GradeReport report;
    report.criteria = {{.id = "a", .points = 3, .mark = Mark::passed},
                       {.id = "b", .points = 4, .mark = Mark::failed},
                       {.id = "c", .points = 5}};
    CHECK(report.points() == 12);
    CHECK(report.earned() == 3);
}

TEST_CASE("A criterion that failed for an earlier one's reason refers to it",
          "[grader]") {
    const auto failed = [](const char* id, const char* lesson, const char* measured) {
        return CriterionReport{.id = id,
                               .title = "title",
                               .lesson = lesson,
                               .points = 5,
                               .mark = Mark::failed,
                               .asked = "a sum of 7",
                               .measured = measured};
    };
    GradeReport report;
    report.criteria = {failed("a1", "column-linear, step 2", "8"),
                       failed("a2", "column-linear, step 3", "8"),
                       failed("a3", "column-linear, step 4", "9")};
    report.finished = true;
    const std::string text = grade_as_text(report, 80, false);
    const auto count = [&](const std::string& words) {
        std::size_t found = 0;
        for (auto at = text.find(words); at != std::string::npos;
             at = text.find(words, at + 1))
            ++found;
        return found;
    };
    INFO(text);
    CHECK(count("asked     a sum of 7") == 2);
    CHECK(count("the same as in a1") == 1);
    CHECK(count("the same as in") == 1);
    CHECK(count("taught in") == 3);
}
