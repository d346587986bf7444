// F24 and F23 are found by comparing values. In some programs the ranks' parameters may
// differ, in others they must be equal.

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"
#include "tests/sim/watched.hpp"

namespace lockstep::test {

namespace {

Tensor own_gradient(Rank& rank, Shape shape, int step) {
    const Tensor gradient = rank.device().empty(shape, DType::f32);
    rank.device().random_normal(gradient, {9, "gradient"}, 0, 1,
                                (step * rank.size() + rank.index()) * shape.elements());
    return gradient;
}

Tensor drawn(Rank& rank, const char* name, std::uint64_t seed) {
    const Tensor weight = rank.device().empty({4, 2}, DType::f32);
    rank.device().random_normal(weight, {seed, name}, 0, 1);
    weight.set_label(name);
    return weight;
}

void sgd(Rank& rank, const Tensor& weight, const Tensor& gradient, double rate = 0.1) {
    rank.device().sgd(weight, gradient, Tensor(), {.learning_rate = rate});
}

/// Clips the gradient's norm to 0.1; if `sharded`, the norm of all shards together.
void clip(Rank& rank, const Tensor& gradient, bool sharded) {
    Device& device = rank.device();
    const Tensor factor = device.zeros({1}, DType::f32);
    device.sum_of_squares(factor, gradient);
    if (sharded) rank.world().all_reduce(factor).wait();
    device.clip_factor(factor, factor, 0.1);
    device.scale(gradient, factor);
}

}  // namespace

TEST_CASE("gradients that are clipped on the device, whole or in shards, are right",
          "[sim]") {
    check_silent(4, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            rank.world().all_reduce(gradient, Reduction::mean).wait();
            clip(rank, gradient, false);
            sgd(rank, weight, gradient);
        }
    });
    check_silent(4, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        const Tensor own = weight.rows(rank.index(), 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            const Tensor shard = rank.device().empty({1, 2}, DType::f32);
            rank.world().reduce_scatter(shard, gradient, Reduction::mean).wait();
            clip(rank, shard, true);
            sgd(rank, own, shard);
            rank.device().copy(shard, own);
            rank.world().all_gather(weight, shard).wait();
        }
    });
}

TEST_CASE("data parallelism with one seed stays one model", "[sim]") {
    check_silent(4, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            rank.world().all_reduce(gradient, Reduction::mean).wait();
            rank.device().scale(gradient, 0.5);
            sgd(rank, weight, gradient);
        }
    });
}

TEST_CASE("ZeRO that sums all gradients and updates its own shard is no drift", "[sim]") {
    check_silent(2, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            if (step == 1) rank.device().fill(gradient, 0);
            rank.world().all_reduce(gradient).wait();
            const auto mine = [&](const Tensor& whole) {
                return whole.rows(2 * rank.index(), 2);
            };
            sgd(rank, mine(weight), mine(gradient));
            if (step < 1) continue;  // gathers only before other ranks' parts are read
            rank.world().all_gather(weight, mine(weight)).wait();
        }
    });
}

TEST_CASE("local SGD drifts for some steps by intention", "[sim]") {
    check_silent(4, [](Rank& rank) {
        const Tensor one = drawn(rank, "one", 1);
        const Tensor two = drawn(rank, "two", 1);
        for (int step = 0; step < 6; ++step) {
            sgd(rank, one, own_gradient(rank, {4, 2}, step));
            sgd(rank, two, own_gradient(rank, {4, 2}, step + 50));
            if (step % 3 < 2) continue;
            rank.world().all_reduce(one, Reduction::mean).wait();
            rank.world().all_reduce(two, Reduction::mean).wait();
        }
    });
}

TEST_CASE("stages, experts and shards with an equal start may become different",
          "[sim]") {
    // Pipeline stages have layers with the same name and seed. Each stage is
    // data-parallel.
    check_silent(4, [](Rank& rank) {
        const auto replicas = rank.world().split(rank.index() / 2, 0, "dp");
        const Tensor weight = drawn(rank, "linear.weight", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            replicas->all_reduce(gradient).wait();
            sgd(rank, weight, gradient);
        }
    });
    // Experts: tokens are exchanged; only the router's gradient is reduced.
    check_silent(4, [](Rank& rank) {
        const Tensor router = drawn(rank, "router.weight", 1);
        const Tensor expert = drawn(rank, "expert.weight", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor tokens = own_gradient(rank, {8}, step);
            const Tensor routed = rank.device().empty({8}, DType::f32);
            rank.world().all_to_all(routed, tokens).wait();
            const Tensor gradient = own_gradient(rank, {4, 2}, step + 9);
            rank.world().all_reduce(gradient).wait();
            sgd(rank, router, gradient);
            sgd(rank, expert, own_gradient(rank, {4, 2}, step + 20));
        }
    });
    // Tensor parallelism: activations are summed, and so are the gradients of the norm.
    check_silent(2, [](Rank& rank) {
        const Tensor norm = drawn(rank, "norm.weight", 1);
        const Tensor shard = drawn(rank, "mlp.weight", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor y = own_gradient(rank, {8}, step);
            rank.world().all_reduce(y).wait();
            const Tensor gradient = own_gradient(rank, {4, 2}, step + 9);
            rank.world().all_reduce(gradient).wait();
            sgd(rank, norm, gradient);
            sgd(rank, shard, own_gradient(rank, {4, 2}, step + 20));
        }
    });
}

TEST_CASE("F24: a rank that steps with another rate drifts at the next step",
          "[sim][errors]") {
    const Diagnosis found = found_by_full_check(4, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            rank.world().all_reduce(gradient, Reduction::mean).wait();
            sgd(rank, weight, gradient, rank.index() == 1 ? 0.2 : 0.1);
        }
    });
    CHECK(found.fault == "F24");
    check_names(found, {"before step 2", "of w", "rank 1 holds", "ranks 0, 2–3 hold",
                        "element [0, 0]", "sgd"});
}

TEST_CASE("F24: a parameter that one rank writes between two steps", "[sim][errors]") {
    const Diagnosis found = found_by_full_check(4, [](Rank& rank) {
        const Tensor weight = drawn(rank, "w", 1);
        for (int step = 0; step < 3; ++step) {
            const Tensor gradient = own_gradient(rank, {4, 2}, step);
            rank.world().all_reduce(gradient, Reduction::mean).wait();
            if (step == 2 && rank.index() == 3) rank.device().scale(weight, 0.5);
            sgd(rank, weight, gradient);
        }
    });
    CHECK(found.fault == "F24");
    check_names(found, {"before step 3", "rank 3", "written by scale", "written by sgd"});
}

TEST_CASE("F23: tied weights, from which one rank takes rows by index", "[sim][errors]") {
    const Diagnosis found = found_by_full_check(2, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor table = drawn(rank, "embedding.weight", 1);
        for (int step = 0; step < 2; ++step) {
            if (rank.index() == 0)
                device.take_rows(device.zeros({1, 2}, DType::f32), table,
                                 device.zeros({1}, DType::i32));
            else
                (void)device.matmul(table, device.zeros({2, 2}, DType::f32));
            sgd(rank, table, own_gradient(rank, {4, 2}, step));
        }
    });
    CHECK(found.fault == "F23");
    check_names(found, {"one looks it up as an embedding"});
}

TEST_CASE("tied weights with summed gradients are silent, for any kind of sum", "[sim]") {
    for (const bool by_messages : {false, true}) {
        check_silent(2, [by_messages](Rank& rank) {
            Device& device = rank.device();
            const Tensor table = drawn(rank, "embedding.weight", 1);
            const Tensor ids = device.zeros({1}, DType::i32);
            for (int step = 0; step < 3; ++step) {
                if (rank.index() == 0)
                    (void)device.embedding(table, ids);
                else
                    (void)device.matmul(table, device.zeros({2, 2}, DType::f32));
                const Tensor gradient = own_gradient(rank, {4, 2}, step);
                if (by_messages) {
                    const Tensor other = device.empty({4, 2}, DType::f32);
                    const int peer = 1 - rank.index();
                    rank.world()
                        .group()
                        .send(gradient, peer)
                        .recv(other, peer)
                        .start()
                        .wait();
                    device.add(gradient, other);
                } else {
                    rank.world().all_reduce(gradient).wait();
                }
                sgd(rank, table, gradient);
            }
        });
    }
}

}  // namespace lockstep::test
