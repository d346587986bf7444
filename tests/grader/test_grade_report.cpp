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
