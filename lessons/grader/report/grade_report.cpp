#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

int GradeReport::points() const {
    int sum = 0;
    for (const CriterionReport& criterion : criteria)
        sum += criterion.points;
    return sum;
}

int GradeReport::earned() const {
    int sum = 0;
    for (const CriterionReport& criterion : criteria)
        sum += criterion.earned();
    return sum;
}

}  // namespace lockstep::lessons
