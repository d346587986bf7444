#include "lessons/02_data_parallel/not_parallel.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "lessons/page/figure.hpp"
#include "sim/cluster.hpp"
#include "src/comm/expect.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/dropout.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/data_parallel.hpp"
#include "src/parallel/global_batch_norm.hpp"
#include "src/trial/difference.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kIn = 6;
constexpr std::int64_t kHidden = 8;
constexpr std::int64_t kOut = 3;
constexpr int kSteps = 5;

/// One rank's share of each batch. A single device has the whole batch.
struct Share {
    Rank& rank;
    std::int64_t batch = 0;  ///< rows of all ranks
    std::int64_t first = 0;  ///< index of this rank's first row
    std::int64_t rows = 0;
    bool cured = false;

    ParameterInit init(const char* part) const {
        return {rank.device(), DType::f64, 11, part};
    }
    /// B_i / B.
    double weight() const { return ratio(rows, batch); }
    /// Returns this rank's rows of a step's batch.
    MicroBatch of_step(int step, double weighs) const {
        Device& device = rank.device();
        MicroBatch mine{device.empty({rows, kIn}, DType::f64),
                        device.empty({rows, kOut}, DType::f64), weighs};
        const std::int64_t row = step * batch + first;
        device.random_normal(mine.input, RandomStream(5, "x"), 0, 1, row * kIn);
        device.random_normal(mine.target, RandomStream(5, "y"), 0, 1, row * kOut);
        return mine;
    }
};

/// Adds up the gradients of all ranks' micro-batches.
void add_up(const Share& share, Module& model, const MicroBatch& mine) {
    const std::vector<MicroBatch> batches{mine};
    data_parallel_gradients(share.rank.device(), share.rank.world(), model,
                            mean_squared_error, batches);
}

/// Trains. In each step `work_out` computes the gradients, and SGD uses them.
void train(const Share& share, Module& model,
           const std::function<void(int step)>& work_out) {
    Sgd optimizer(model.parameters(), {.learning_rate = 0.2});
    for (int step = 0; step < kSteps; ++step) {
        work_out(step);
        optimizer.step();
    }
    for (const Parameter* parameter : model.parameters())
        share.rank.keep(parameter->name(), parameter->value);
}

// lesson: own-statistics
void with_batch_norm(const Share& share) {
    Communicator& world = share.rank.world();
    const ParameterInit init = share.init("norm");
    Sequential model;
    model.add<Linear>(share.init("0"), kIn, kHidden);
    BatchNorm& norm = share.cured ? model.add<GlobalBatchNorm>(init, world, kHidden)
                                  : model.add<BatchNorm>(init, kHidden);
    model.add<Tanh>(share.rank.device());
    model.add<Linear>(share.init("2"), kHidden, kOut);
    train(share, model,
          [&](int step) { add_up(share, model, share.of_step(step, share.weight())); });
    // Evaluation reads these statistics. They must be the same on all ranks.
    declare_same(world, norm.running_mean(), "running_mean");
    share.rank.keep("running_mean", norm.running_mean());
    share.rank.keep("running_var", norm.running_variance());
}
// lesson: end

void add_plain_layers(const Share& share, Sequential& model) {
    model.add<Linear>(share.init("0"), kIn, kHidden);
    model.add<Tanh>(share.rank.device());
    model.add<Linear>(share.init("2"), kHidden, kOut);
}

// lesson: mean-of-means
void with_mean_loss(const Share& share) {
    Sequential model;
    add_plain_layers(share, model);
    const double weight = share.cured ? share.weight() : 1.0 / share.rank.size();
    train(share, model,
          [&](int step) { add_up(share, model, share.of_step(step, weight)); });
}
// lesson: end

// lesson: one-mask
void with_dropout(const Share& share) {
    Sequential model;
    model.add<Linear>(share.init("0"), kIn, kHidden);
    Dropout& dropout = model.add<Dropout>(share.rank.device(), 0.5, RandomStream(9, 0));
    model.add<Tanh>(share.rank.device());
    model.add<Linear>(share.init("2"), kHidden, kOut);
    train(share, model, [&](int step) {
        const std::int64_t row = step * share.batch + (share.cured ? share.first : 0);
        dropout.set_part(row * kHidden);
        add_up(share, model, share.of_step(step, share.weight()));
    });
}
// lesson: end

/// Scales the gradients of this rank so that their own norm is at most `most`.
void clip_own(Device& device, const std::vector<Parameter*>& parameters, double most) {
    const Tensor factor = device.zeros({1}, DType::f64);
    for (const Parameter* parameter : parameters)
        device.sum_of_squares(factor, parameter->gradient);
    device.clip_factor(factor, factor, most);
    for (const Parameter* parameter : parameters)
        device.scale(parameter->gradient, factor);
}

// lesson: own-norm
void with_clipping(const Share& share) {
    constexpr double kMost = 0.1;
    Device& device = share.rank.device();
    Communicator& world = share.rank.world();
    Sequential model;
    add_plain_layers(share, model);
    const std::vector<Parameter*> parameters = model.parameters();
    declare_replicas_of(world, model);
    train(share, model, [&](int step) {
        const std::vector<MicroBatch> mine{share.of_step(step, share.weight())};
        accumulate_gradients(device, model, mean_squared_error, mine);
        if (!share.cured) clip_own(device, parameters, kMost);
        complete_gradients(parameters);
        if (share.cured) clip_gradients(device, world, parameters, kMost);
    });
}
// lesson: end

/// Returns a program for n ranks, or for one device that has the batches of all n ranks.
Program program_of(const std::string& what, int ranks, bool cured) {
    static const std::map<std::string, void (*)(const Share&)> kPrograms{
        {"batch_statistics", with_batch_norm},
        {"mean_loss", with_mean_loss},
        {"dropout", with_dropout},
        {"clipping", with_clipping}};
    const std::int64_t batch = std::int64_t{ranks} * (ranks + 1);
    return [batch, cured, program = kPrograms.at(what)](Rank& rank) {
        const std::int64_t i = rank.index();
        const bool is_alone = rank.size() == 1;
        program({rank, batch, is_alone ? 0 : i * (i + 1), is_alone ? batch : 2 * (i + 1),
                 cured});
    };
}

sim::ClusterOptions cluster_of(int ranks, sim::CheckLevel check) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.check = check;
    return options;
}

/// Returns the largest relative difference between a rank's tensors and one device's.
double distance(const std::string& what, int ranks, bool cured) {
    const auto run = [&](int count) {
        return sim::make_cluster(cluster_of(count, sim::CheckLevel::cheap))
            ->run(program_of(what, ranks, cured));
    };
    const RunReport one = run(1), many = run(ranks);
    double worst = 0;
    for (const RankReport& rank : many.ranks) {
        const double here = difference(rank.kept, one.ranks[0].kept).relative;
        if (!(here <= worst)) worst = here;
    }
    return worst;
}

/// Returns the fault class that the full check finds, or the diagnosis' title if it has
/// no class. Returns nothing if the check is silent.
std::string found_in(const std::string& what, int ranks, bool cured, bool beside_one) {
    sim::ClusterOptions options = cluster_of(ranks, sim::CheckLevel::full);
    if (beside_one) options.reference = program_of(what, ranks, cured);
    try {
        sim::make_cluster(std::move(options))->run(program_of(what, ranks, cured));
    } catch (const FaultError& fault) {
        const Diagnosis& diagnosis = fault.diagnosis();
        return diagnosis.fault.empty() ? diagnosis.title : diagnosis.fault;
    }
    return {};
}

}  // namespace

NotParallelOutcome try_not_parallel(const std::string& what, int ranks) {
    NotParallelOutcome outcome;
    outcome.mistaken = distance(what, ranks, /*cured=*/false);
    outcome.cured = distance(what, ranks, /*cured=*/true);
    outcome.found = found_in(what, ranks, /*cured=*/false, /*beside_one=*/false);
    outcome.found_beside_one_device =
        found_in(what, ranks, /*cured=*/false, /*beside_one=*/true);
    outcome.found_in_cure = found_in(what, ranks, /*cured=*/true, /*beside_one=*/false) +
                            found_in(what, ranks, /*cured=*/true, /*beside_one=*/true);
    return outcome;
}

}  // namespace lockstep::lessons
