#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/solution.hpp"

namespace lockstep::lessons {

class Judge;

/// One thing that is graded: it earns all of its points or none.
struct Criterion {
    std::string id;     ///< "a1.3-bytes"; begins with the part of the handout
    std::string title;  ///< "all_reduce sends what a ring must, and no more"
    int points = 0;
    std::string lesson;  ///< where it is taught: "gradient-accumulation, step 5"
    /// Runs and checks the student's tasks through the judge; returns if all is right.
    std::function<void(Judge&)> judge;
    /// Ids of the criteria that are judged first, in this order; all of them must pass.
    std::vector<std::string> needs{};
    /// Ids of the criteria that are judged, too, if this criterion fails. If one of these
    /// also fails, the report only names that criterion as the cause.
    std::vector<std::string> after{};
};

/// The grader's part of an assignment. The files for students are in the Kit.
struct Assignment {
    std::string slug;   ///< "ring-all-reduce"
    std::string title;  ///< "A ring all-reduce"
    std::string about;  ///< one line for the list
    /// The student's files, sources and headers; all other files are the grader's.
    std::vector<std::string> files;
    std::vector<Criterion> criteria;
    /// Returns the reference, and copies of it with typical mistakes.
    std::vector<Solution> (*solutions)() = nullptr;
};

}  // namespace lockstep::lessons
