#include "lessons/assignments/cost_of.hpp"

#include "lessons/grader/examiner.hpp"
#include "sim/cluster.hpp"

namespace lockstep::lessons {

RunReport cost_of(int ranks, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = examination_cluster();
    options.numbers = false;
    options.workers = 1;
    options.check = sim::CheckLevel::cheap;
    return sim::make_cluster(options)->run(program);
}

}  // namespace lockstep::lessons
