// Data parallelism in all its forms, without a mistake. The checker must find nothing.

#include <algorithm>
#include <cmath>
#include <functional>

#include "src/parallel/data_parallel.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kRows = 4;  // of a rank's share

/// Returns a rank's share of a batch. The rank has place `place` of `places`.
MicroBatch share_of(Device& device, int step, int place, int places, double weight) {
    const std::int64_t first = (step * places + place) * kRows;
    return {random_rows(device, "x", first, kRows, 6),
            random_rows(device, "y", first, kRows, 4), weight};
}

/// Runs forward and backward of one micro-batch. Returns the loss.
Tensor train(Device& device, Module& model, const MicroBatch& batch, int index = 0) {
    Saved saved;
    LossResult result;
    {
        const PhaseScope phase(device, Phase::forward, index);
        result = mean_squared_error(device, model.forward(batch.input, saved),
                                    batch.target, batch.weight);
    }
    const PhaseScope phase(device, Phase::backward, index);
    model.backward(result.gradient, saved);
    return result.loss;
}

/// Replicas. Each rank trains one replica on its share of each batch.
struct Replicas {
    using Parameters = std::vector<Parameter*>;

    int ranks = 4;
    double weight = 0.25;  ///< of one share's loss
    SgdOptions options;
    /// Turns a step's gradients into the gradients of the whole batch.
    std::function<void(Rank&, const Parameters&, int step)> reduce;
    /// If set, returns a rank's share of the batch, instead of share_of().
    std::function<MicroBatch(Rank&, int step)> share;

    void train_on(Rank& rank) const {
        Device& device = rank.device();
        const auto model = make_mlp(device);
        Sgd optimizer(model->parameters(), options);
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            train(device, *model,
                  share ? share(rank, i)
                        : share_of(device, i, rank.index(), ranks, weight));
            reduce(rank, model->parameters(), i);
            step(device, optimizer);
        }
    }
};

void must_stay_silent(const Replicas& replicas) {
    test::must_stay_silent(replicas.ranks, [&](Rank& rank) { replicas.train_on(rank); });
}

/// Sums the gradients over all ranks.
void add_up(Rank& rank, const Replicas::Parameters& parameters, int /*step*/) {
    for (Parameter* parameter : parameters)
        rank.world().all_reduce(parameter->gradient).wait();
}

}  // namespace

TEST_CASE("correct: gradients summed over weighted shares", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const auto model = make_mlp(device);
        AdamW optimizer(model->parameters());
        for (int i = 0; i < kSteps; ++i) {
            std::vector<MicroBatch> mine;
            for (int m = 0; m < 2; ++m)
                mine.push_back(share_of(device, 2 * i + m, rank.index(), 4, 1.0 / 8));
            const Tensor loss = data_parallel_gradients(device, rank.world(), *model,
                                                        mean_squared_error, mine);
            rank.world().all_reduce(loss).wait();
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: each rank's mean, averaged", "[faults]") {
    Replicas replicas;
    replicas.weight = 1;
    replicas.options = {0.1, 0.9, 0.01};
    replicas.reduce = [](Rank& rank, const Replicas::Parameters& parameters, int) {
        for (Parameter* parameter : parameters)
            rank.world().all_reduce(parameter->gradient, Reduction::mean).wait();
    };
    must_stay_silent(replicas);
}

TEST_CASE("correct: a sum over ranks, divided by their number", "[faults]") {
    Replicas replicas;
    replicas.weight = 1;
    replicas.reduce = [](Rank& rank, const Replicas::Parameters& parameters, int) {
        for (Parameter* parameter : parameters) {
            rank.world().all_reduce(parameter->gradient).wait();
            rank.device().scale(parameter->gradient, 1.0 / rank.size());
        }
    };
    must_stay_silent(replicas);
}

TEST_CASE("correct: a loss scaled for half precision, and gradients unscaled",
          "[faults]") {
    Replicas replicas;
    replicas.weight = 1024.0 / 4;
    replicas.reduce = [](Rank& rank, const Replicas::Parameters& parameters, int) {
        for (Parameter* parameter : parameters) {
            rank.world().all_reduce(parameter->gradient).wait();
            rank.device().scale(parameter->gradient, 1.0 / 1024);
        }
    };
    must_stay_silent(replicas);
}

TEST_CASE("correct: a summed loss with a small learning rate", "[faults]") {
    Replicas replicas;
    replicas.weight = kRows * 4;  // so each element has the factor 1
    replicas.options = {0.001, 0, 0};
    replicas.reduce = add_up;
    must_stay_silent(replicas);
}

TEST_CASE("correct: buckets reduced while backward goes on", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const auto grads = rank.world().split(0, rank.index(), "grads");
        const auto model = make_mlp(device);
        AdamW optimizer(model->parameters());
        std::vector<Work> pending;
        bool last = false;
        for (Parameter* parameter : model->parameters())
            parameter->on_gradient([&](Parameter& ready) {
                if (last)
                    pending.push_back(grads->all_reduce(ready.gradient, Reduction::mean));
            });
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            for (int m = 0; m < 2; ++m) {
                last = m == 1;
                train(device, *model, share_of(device, 2 * i + m, rank.index(), 4, 0.5),
                      m);
            }
            pending.back().wait();  // all-reduces end in order, so all have ended
            pending.clear();
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: uneven shares with weights", "[faults]") {
    Replicas replicas;
    replicas.ranks = 3;
    replicas.share = [](Rank& rank, int step) {
        const std::int64_t rows = 2 + rank.index();  // 2, 3 or 4; together 9
        const std::int64_t first = 9 * step + 2 * rank.index();
        return MicroBatch{random_rows(rank.device(), "x", first, rows, 6),
                          random_rows(rank.device(), "y", first, rows, 4),
                          static_cast<double>(rows) / 9};
    };
    replicas.reduce = add_up;
    must_stay_silent(replicas);
}

TEST_CASE("correct: ring collectives by hand", "[faults]") {
    Replicas replicas;
    replicas.ranks = 5;
    replicas.weight = 0.2;
    replicas.reduce = [](Rank& rank, const Replicas::Parameters& parameters, int step) {
        const auto all_reduce =
            step % 2 == 0 ? ring_all_reduce : recursive_doubling_all_reduce;
        for (Parameter* parameter : parameters)
            all_reduce(rank.device(), rank.world(), parameter->gradient);
    };
    must_stay_silent(replicas);
}

TEST_CASE("correct: clipping by the norm of all gradients", "[faults]") {
    Replicas replicas;
    replicas.reduce = [](Rank& rank, const Replicas::Parameters& parameters, int step) {
        Device& device = rank.device();
        const Tensor total = device.zeros({1}, DType::f64);
        add_up(rank, parameters, step);
        for (Parameter* parameter : parameters) {
            const Tensor square = device.empty(parameter->shape(), DType::f64);
            device.copy(square, parameter->gradient);
            device.multiply(square, parameter->gradient);
            device.sum(total, square, true);
        }
        const double norm = std::sqrt(device.download(total).at(0));
        for (Parameter* parameter : parameters)
            device.scale(parameter->gradient, 1 / std::max(1.0, norm));
    };
    must_stay_silent(replicas);
}

TEST_CASE("correct: local SGD averages after every few steps", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const auto model = make_mlp(device);
        Sgd optimizer(model->parameters(), {0.05, 0, 0});
        for (int i = 0; i < 6; ++i) {
            zero_gradients(*model);
            train(device, *model, share_of(device, i, rank.index(), 4, 1));
            step(device, optimizer);
            if (i % 3 != 2) continue;
            for (Parameter* parameter : model->parameters()) {
                if (i == 2) {
                    rank.world().all_reduce(parameter->value, Reduction::mean).wait();
                } else {
                    rank.world().all_reduce(parameter->value).wait();
                    device.scale(parameter->value, 0.25);
                }
            }
        }
    });
}

TEST_CASE("correct: a parameter server", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& world = rank.world();
        const auto model = make_mlp(device);
        for (Parameter* parameter : model->parameters())
            world.broadcast(parameter->value, 0).wait();
        Sgd optimizer(model->parameters());
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            if (rank.index() > 0)
                train(device, *model, share_of(device, i, rank.index() - 1, 3, 1.0 / 3));
            for (Parameter* parameter : model->parameters()) {
                if (rank.index() > 0) {
                    world.send(parameter->gradient, 0).wait();
                    world.recv(parameter->value, 0).wait();
                    continue;
                }
                const Tensor arriving = device.empty(parameter->shape(), DType::f64);
                for (int worker = 1; worker < 4; ++worker) {
                    world.recv(arriving, worker).wait();
                    device.add(parameter->gradient, arriving);
                }
                device.sgd(parameter->value, parameter->gradient, Tensor(), {});
                for (int worker = 1; worker < 4; ++worker)
                    world.send(parameter->value, worker).wait();
            }
        }
    });
}

TEST_CASE("correct: metrics, checkpoints and evaluation between steps", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        Communicator& world = rank.world();
        const auto model = make_mlp(device, 7 + static_cast<unsigned>(rank.index()));
        for (Parameter* parameter : model->parameters())
            world.broadcast(parameter->value, 0).wait();
        AdamW optimizer(model->parameters());
        const Tensor ones = device.empty({1}, DType::f64);
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            const Tensor loss =
                train(device, *model, share_of(device, i, rank.index(), 4, 0.25));
            for (Parameter* parameter : model->parameters())
                world.all_reduce(parameter->gradient).wait();
            step(device, optimizer);
            // Reduces the mean loss, the number of ranks and the worst rank's loss.
            const Tensor worst = device.empty({1}, DType::f64);
            device.copy(worst, loss);
            world.all_reduce(loss).wait();
            world.all_reduce(worst, Reduction::maximum).wait();
            world.all_reduce(worst, Reduction::maximum).wait();
            device.fill(ones, 1);
            world.all_reduce(ones).wait();
            rank.keep_value("ranks", device.download(ones).at(0));
            // Evaluates each rank's own data.
            Saved saved;
            const PhaseScope phase(device, Phase::forward, 0);
            const Tensor y =
                model->forward(random_rows(device, "test", rank.index(), 2, 6), saved);
            rank.keep("prediction", y);
            for (Parameter* parameter : model->parameters())
                rank.keep(parameter->name(), parameter->value);
        }
    });
}

TEST_CASE("correct: on one rank nothing can be reduced twice or drift", "[faults]") {
    must_stay_silent(1, [](Rank& rank) {
        Device& device = rank.device();
        const auto model = make_mlp(device);
        Sgd optimizer(model->parameters());
        const auto alone = rank.world().split(0, 0, "dp");
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            MicroBatch batch = share_of(device, i, 0, 1, 1);
            const Tensor mask = device.empty({kRows, 6}, DType::f64);
            {
                const PhaseScope phase(device, Phase::forward, 0);
                device.random_uniform(mask, RandomStream(1, "mask"), 0, 2);
                device.multiply(batch.input, mask);
            }
            train(device, *model, batch);
            for (Parameter* parameter : model->parameters()) {
                rank.world().all_reduce(parameter->gradient).wait();
                alone->all_reduce(parameter->gradient).wait();
                alone->all_reduce(parameter->gradient, Reduction::mean).wait();
            }
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: summed within nodes, then between them", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const int node = rank.index() / 2;
        const int local = rank.index() % 2;
        const auto within = rank.world().split(node, local, "node");
        const auto between = rank.world().split(local, node, "between");
        const auto model = make_mlp(device);
        Sgd optimizer(model->parameters());
        for (int i = 0; i < kSteps; ++i) {
            zero_gradients(*model);
            train(device, *model, share_of(device, i, rank.index(), 4, 0.25));
            for (Parameter* parameter : model->parameters()) {
                if (i == 1 && parameter->gradient.elements() % 2 == 0) {
                    // Reduce-scatter in nodes, all-reduce between, all-gather in nodes.
                    const Tensor whole = parameter->gradient.flat();
                    const std::int64_t half = whole.elements() / 2;
                    const Tensor part = whole.slice(half * local, half);
                    within->reduce_scatter(part, whole).wait();
                    between->all_reduce(part).wait();
                    within->all_gather(whole, part).wait();
                } else {
                    within->all_reduce(parameter->gradient).wait();
                    between->all_reduce(parameter->gradient).wait();
                }
            }
            step(device, optimizer);
        }
    });
}

TEST_CASE("correct: a power iteration multiplies and sums again and again", "[faults]") {
    must_stay_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor columns = random_rows(device, "matrix", 2 * rank.index(), 2, 8);
        Tensor vector = device.empty({8, 1}, DType::f64);
        device.fill(vector, 1);
        for (int i = 0; i < 5; ++i) {
            MatmulOptions left;
            left.transpose_a = true;
            const Tensor part = device.matmul(columns, vector);
            vector = device.matmul(columns, part, left);
            rank.world().all_reduce(vector).wait();
            device.scale(vector, 0.1);
        }
    });
}

}  // namespace lockstep::test
