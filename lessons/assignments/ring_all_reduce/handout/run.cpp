// Shows your all_reduce on four virtual devices, as a timeline.

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

int main() {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.trace = true;
    options.check = sim::CheckLevel::full;
    return show_run(
        *sim::make_cluster(options),
        [](Rank& rank) {
            const Tensor buffer = rank.device().zeros({4096}, DType::f32);
            rank.device().fill(buffer, rank.index());
            adapters::all_reduce(rank, buffer);
        },
        "all-reduce");
}
