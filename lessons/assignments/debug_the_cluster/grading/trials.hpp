#pragma once

#include <map>
#include <string>
#include <vector>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

/// One of the six programs, at some size: what each rank is given, and what it must
/// leave, by name. Names begin with the program's.
struct Trial {
    std::string program;
    std::string name;  ///< "3 ranks, 8 micro-batches"
    std::vector<RankTask> ranks;
    std::vector<std::map<std::string, HostTensor>> expected;
};

using Trials = std::vector<Trial>;

/// Those of each program: sizes in the public test and not, one rank, and a number of
/// ranks that is drawn.
Trials filter_trials(const Judge& judge);
Trials pipeline_trials(const Judge& judge);
Trials prefetch_trials(const Judge& judge);
Trials evaluate_trials(const Judge& judge);
Trials clip_trials(const Judge& judge);
Trials accumulate_trials(const Judge& judge);

/// All six on so many ranks, in one run: its program is "all".
Trial trial_of_all(const Judge& judge, int ranks);

}  // namespace lockstep::lessons
