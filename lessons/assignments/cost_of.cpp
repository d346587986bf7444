#include "lessons/assignments/cost_of.hpp"

#include "lessons/grader/examiner.hpp"
#include "sim/cluster.hpp"

namespace lockstep::lessons {

RunReport cost_of(int ranks, const Program& program) {
    return cost_of(ranks, program, examination_cluster());
}

RunReport cost_of(int ranks, const Program& program, const ClusterSpec& spec) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = spec;
    options.numbers = false;
    options.workers = 1;
    options.check = sim::CheckLevel::cheap;
    return sim::make_cluster(options)->run(program);
}

}  // namespace lockstep::lessons
