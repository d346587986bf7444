#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/solution.hpp"

namespace lockstep::lessons {

class Judge;

/// One thing that is graded, all or nothing.
struct Criterion {
    std::string id;     ///< "a1.3-bytes"; begins with the part of the handout
    std::string title;  ///< "all_reduce sends what a ring must, and no more"
    int points = 0;
    std::string lesson;  ///< where it is taught: "gradient-accumulation, step 5"
    /// Runs the student's tasks and asks the judge; returns if nothing is wrong.
    std::function<void(Judge&)> judge;
    /// Ids of criteria that have to be met before, in the order in which they are asked.
    std::vector<std::string> needs{};
    /// Ids of criteria that say it first if the same is wrong there.
    std::vector<std::string> after{};
};

/// An assignment, as the grader knows it. What students are given lies in the kit.
struct Assignment {
    std::string slug;   ///< "ring-all-reduce"
    std::string title;  ///< "A ring all-reduce"
    std::string about;  ///< one line for the list
    /// The student's files, sources and headers; all others are the grader's.
    std::vector<std::string> files;
    std::vector<Criterion> criteria;
    /// Makes its reference, and what usual mistakes make of that.
    std::vector<Solution> (*solutions)() = nullptr;
};

}  // namespace lockstep::lessons
