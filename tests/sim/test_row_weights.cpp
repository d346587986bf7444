// The weight of each row in a gradient, from the loss to the update. Some programs
// average wrongly or add up means of unequal rows; others are right or cannot be judged.

#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

struct Case {
    int ranks = 3;
    int micro_batches = 1;
    /// The number of rows in a rank's micro-batch.
    std::function<int(int rank, int micro_batch)> rows = [](int, int) { return 4; };
    /// The factor of the mean over a micro-batch's rows.
    std::function<double(int rows)> weight = [](int) { return 1.0; };
    Reduction reduction = Reduction::sum;
    double scale = 1;
    bool squared = false;
    bool phases = true;
    bool same_data = false;
};

std::string found(const Case& is) {
    const auto program = [&](Rank& rank) {
        Device& device = rank.device();
        Linear model({device, DType::f64, 7, "head"}, 6, 7);
        Sgd optimizer(model.parameters());
        for (int m = 0; m < is.micro_batches; ++m) {
            std::optional<PhaseScope> phase;
            if (is.phases) phase.emplace(device, Phase::backward, m);
            const int rows = is.rows(rank.index(), m);
            const int first = is.same_data ? 0 : 100 * (rank.index() + 10 * m);
            const Tensor x = device.empty({rows, 6}, DType::f64);
            device.random_normal(x, RandomStream(1, "x"), 0, 1, first);
            Saved saved;
            const Tensor prediction = model.forward(x, saved);
            const double weight = is.weight(rows);
            LossResult loss;
            if (is.squared) {
                const Tensor y = device.zeros({rows, 7}, DType::f64);
                loss = mean_squared_error(device, prediction, y, weight);
            } else {
                HostTensor labels({rows}, DType::i32);
                loss =
                    cross_entropy_loss(device, prediction, device.upload(labels), weight);
            }
            model.backward(loss.gradient, saved);
        }
        for (const Parameter* parameter : model.parameters()) {
            rank.world().all_reduce(parameter->gradient, is.reduction).wait();
            if (is.scale != 1) device.scale(parameter->gradient, is.scale);
        }
        optimizer.step();
    };
    World world;
    world.check = sim::CheckLevel::full;
    try {
        make_cluster_in(world, is.ranks)->run(program);
    } catch (const FaultError& error) {
        INFO(error.diagnosis().text());
        CHECK(error.diagnosis().parties.size() >= 2);
        return error.diagnosis().fault;
    }
    return "";
}

/// A router sends each of six rows to one of two experts, and the results return. The
/// loss is the mean over all rows, times `weight`.
void train_experts(Rank& rank, bool scaled, double weight) {
    Device& device = rank.device();
    const Tensor x = device.empty({6, 4}, DType::f64);
    device.random_normal(x, RandomStream(1, "x"), 0, 1, std::int64_t{100} * rank.index());
    const Tensor router = device.empty({4, 2}, DType::f64);
    device.random_normal(router, RandomStream(1, "router"), 0, 1);
    const Tensor factors = device.empty({6, 1}, DType::f64);
    const Tensor indices = device.empty({6, 1}, DType::i32);
    device.top_k(factors, indices, device.matmul(x, router), 1);
    const HostTensor experts = device.download(indices);

    for (int expert = 0; expert < 2; ++expert) {
        std::vector<std::int32_t> own;
        for (std::int32_t row = 0; row < 6; ++row)
            if (experts.at(row) == expert) own.push_back(row);
        const auto count = static_cast<std::int64_t>(own.size());
        const Tensor rows = device.upload(HostTensor::of<std::int32_t>({count}, own));
        const Tensor taken = device.empty({count, 4}, DType::f64);
        device.take_rows(taken, x, rows);
        const Tensor row_factors = device.empty({count, 1}, DType::f64);
        device.take_rows(row_factors, factors, rows);
        Linear model({device, DType::f64, 7, "expert"}, 4, 5);
        Saved saved;
        const Tensor result = model.forward(taken, saved);
        if (scaled) device.scale_rows(result, row_factors);
        const Tensor y = device.zeros({6, 5}, DType::f64);
        device.add_rows(y, result, rows);
        const LossResult loss = cross_entropy_loss(
            device, y, device.upload(HostTensor({6}, DType::i32)), weight);
        const Tensor d_result = device.empty({count, 5}, DType::f64);
        device.take_rows(d_result, loss.gradient, rows);
        if (scaled) device.scale_rows(d_result, row_factors);
        model.backward(d_result, saved);
        for (const Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient, Reduction::mean).wait();
        Sgd(model.parameters()).step();
    }
}

}  // namespace

TEST_CASE("rows sent to an expert and back count with the loss's weights", "[sim]") {
    World world;
    world.check = sim::CheckLevel::full;
    for (const bool scaled : {false, true})
        CHECK_NOTHROW(make_cluster_in(world, 3)->run(
            [scaled](Rank& rank) { train_experts(rank, scaled, 1); }));
    // The loss divides by the number of ranks, and the mean over ranks divides again.
    CHECK_THROWS_AS(make_cluster_in(world, 3)->run(
                        [](Rank& rank) { train_experts(rank, false, 1.0 / 3); }),
                    FaultError);
}

TEST_CASE("each of two heads that take turns has half of the mean", "[sim]") {
    for (World world : all_worlds()) {
        world.check = sim::CheckLevel::full;
        CHECK_NOTHROW(make_cluster_in(world, 2)->run([](Rank& rank) {
            Device& device = rank.device();
            for (int step = 0; step < 2; ++step) {
                std::vector<std::unique_ptr<Linear>> heads;
                for (int head = 0; head < 2; ++head) {
                    heads.emplace_back(new Linear({device, DType::f64, 7, "head"}, 6, 7));
                    const Tensor x = device.empty({4, 6}, DType::f64);
                    device.random_normal(
                        x, RandomStream(1, "x"), 0, 1,
                        std::int64_t{100} * (rank.index() + 2 * head + 4 * step));
                    Saved saved;
                    const Tensor prediction = heads.back()->forward(x, saved);
                    const HostTensor labels({4}, DType::i32);
                    // Each of the two micro-batches of a step has half of the mean over
                    // this rank's rows.
                    const LossResult loss = cross_entropy_loss(
                        device, prediction, device.upload(labels), 0.5);
                    heads.back()->backward(loss.gradient, saved);
                }
                for (const auto& head : heads) {
                    for (const Parameter* parameter : head->parameters())
                        rank.world()
                            .all_reduce(parameter->gradient, Reduction::mean)
                            .wait();
                    Sgd(head->parameters()).step();
                }
            }
        }));
    }
}

TEST_CASE("wrong averages", "[sim][faults]") {
    for (const bool squared : {false, true}) {
        Case is;
        is.squared = squared;
        CHECK(found(is) == "F21");  // a sum of means
        is.reduction = Reduction::mean;
        CHECK(found(is).empty());
        is.scale = 1.0 / 3;
        CHECK(found(is) == "F21");  // divided twice
        is.weight = [](int) { return 1.0 / 3; };
        is.scale = 1;
        CHECK(found(is) == "F21");  // divided in the loss, and again by the mean
        is.reduction = Reduction::sum;
        CHECK(found(is).empty());
        is.micro_batches = 2;
        is.weight = [](int) { return 1.0 / 6; };
        CHECK(found(is).empty());
        is.weight = [](int) { return 1.0 / 2; };
        CHECK(found(is) == "F21");
    }
}

/// Steps with a flat buffer. The checker knows nothing about half of the buffer. The
/// other half is the gradient of a mean over this rank's rows, times `weight`. Both
/// halves are averaged over the ranks.
void train_flat(Rank& rank, double weight) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "head"}, 6, 7);
    const Tensor x = device.empty({4, 6}, DType::f64);
    device.random_normal(x, RandomStream(1, "x"), 0, 1, std::int64_t{100} * rank.index());
    Saved saved;
    const LossResult loss =
        cross_entropy_loss(device, model.forward(x, saved),
                           device.upload(HostTensor({4}, DType::i32)), weight);
    model.backward(loss.gradient, saved);
    const Tensor& known = model.parameters().front()->gradient;
    const std::int64_t count = known.elements();
    const Tensor gradients = device.empty({2 * count}, DType::f64);
    device.random_normal(gradients.slice(0, count), RandomStream(1, "g"), 0, 1);
    device.copy(gradients.slice(count, count), known.flat());
    rank.world().all_reduce(gradients, Reduction::mean).wait();
    Parameter flat("flat", device.zeros({2 * count}, DType::f64), gradients);
    Sgd({&flat}).step();
}

TEST_CASE("the known part of a gradient is judged", "[sim][faults]") {
    World world;
    world.check = sim::CheckLevel::full;
    CHECK_NOTHROW(
        make_cluster_in(world, 3)->run([](Rank& rank) { train_flat(rank, 1); }));
    try {
        make_cluster_in(world, 3)->run([](Rank& rank) { train_flat(rank, 1.0 / 3); });
        FAIL("a mean was divided twice, and nothing was said");
    } catch (const FaultError& error) {
        CHECK(error.diagnosis().fault == "F21");
    }
}

TEST_CASE("weights that a checker cannot judge", "[sim][faults]") {
    Case is;
    SECTION("a sum over rows") {
        is.weight = [](int rows) { return 1.0 * rows; };
    }
    SECTION("a scaled loss") {
        is.weight = [](int) { return 1024; };
    }
    SECTION("clipped") {
        is.scale = 0.77;
    }
    SECTION("every micro-batch with weight 1") {
        is.micro_batches = 2;
    }
    SECTION("replicas of the same rows") {
        is.same_data = true;
    }
    SECTION("half of the squared error") {
        is.ranks = 2;
        is.squared = true;
        is.weight = [](int) { return 0.25; };
    }
    CHECK(found(is).empty());
}

TEST_CASE("means of unequal means", "[sim][faults]") {
    Case is;
    is.rows = [](int rank, int) { return 3 + rank; };  // 3, 4, 5
    is.reduction = Reduction::mean;
    for (const bool squared : {false, true}) {
        is.squared = squared;
        is.weight = [](int) { return 1.0; };
        CHECK(found(is) == "F28");
        is.weight = [](int rows) { return 3 * rows / 12.0; };
        CHECK(found(is).empty());
    }
    is.rows = [](int, int micro_batch) { return 3 + micro_batch; };
    is.micro_batches = 2;
    is.weight = [](int) { return 0.5; };
    CHECK(found(is) == "F28");
    is.phases = false;  // without phases, micro-batches may be meant to count equally
    CHECK(found(is).empty());
}

}  // namespace lockstep::test
