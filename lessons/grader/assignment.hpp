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
    /// Runs the student's tasks and asks the judge; returns if nothing is wrong.
    std::function<void(Judge&)> judge;
    /// Ids of criteria that must be met first, in the order in which they are asked.
    std::vector<std::string> needs{};
    /// If this criterion fails, asks the criteria with these ids too. If one of those
    /// fails, the report only names that one.
    std::vector<std::string> after{};
};

/// An assignment as the grader knows it. The files for students are in the kit.
struct Assignment {
    std::string slug;   ///< "ring-all-reduce"
    std::string title;  ///< "A ring all-reduce"
    std::string about;  ///< one line for the list
    /// The student's files, sources and headers; all other files are the grader's.
    std::vector<std::string> files;
    std::vector<Criterion> criteria;
    /// Makes the reference, and its copies with typical mistakes.
    std::vector<Solution> (*solutions)() = nullptr;
};

}  // namespace lockstep::lessons
