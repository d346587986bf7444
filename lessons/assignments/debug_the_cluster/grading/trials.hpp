#pragma once

#include <map>
#include <string>
#include <vector>

#include "lessons/assignments/debug_the_cluster/grading/figures.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

/// A typical mistake leaves these values, and a sentence says which it is.
struct Mistake {
    HostTensor values;
    std::string sentence;
};

/// One of the six programs, at some size: what each rank is given, and what it must
/// leave, by name. Names begin with the program's.
struct Trial {
    std::string program;
    std::string name;  ///< "3 ranks, 8 micro-batches"
    std::vector<RankTask> ranks;
    std::vector<std::map<std::string, HostTensor>> expected;
    std::vector<std::map<std::string, std::vector<Mistake>>> mistakes{};
    Figures figures{};
};

using Trials = std::vector<Trial>;

/// Those of each program: sizes that ranks divide and do not divide, one rank, and other
/// numbers of ranks; drawn anew for each grading.
Trials filter_trials(const Judge& judge);
Trials pipeline_trials(const Judge& judge);
Trials prefetch_trials(const Judge& judge);
Trials evaluate_trials(const Judge& judge);
Trials clip_trials(const Judge& judge);
Trials accumulate_trials(const Judge& judge);

/// All six on so many ranks, in one run: its program is "all".
Trial trial_of_all(const Judge& judge, int ranks);

}  // namespace lockstep::lessons
