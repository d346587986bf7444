// F25: programs that make weights stale, and programs that the check must accept.

#include "src/comm/rank.hpp"
#include "tests/sim/watched.hpp"

namespace lockstep::test {

namespace {

Tensor drawn(Device& device, Shape shape, const char* name) {
    Tensor tensor = device.empty(shape, DType::f32);
    device.random_normal(tensor, {1, name}, 0, 0.5);
    return tensor;
}

struct Layer {
    Device& device;
    Tensor weight = drawn(device, {4, 4}, "weight");
    Tensor x = drawn(device, {2, 4}, "x");

    void forward(int i, const Tensor& weights) const {
        const PhaseScope phase(device, Phase::forward, i);
        (void)device.matmul(x, weights);
    }
    void backward(int i, const Tensor& weights, Phase part = Phase::backward) const {
        const PhaseScope phase(device, part, i);
        (void)device.matmul(x, weights, {.transpose_b = true});
    }
    void step(const Tensor& parameter) const {
        device.sgd(parameter, device.zeros(parameter.shape(), DType::f32), Tensor(), {});
    }
};

}  // namespace

TEST_CASE("steps between batches make nothing stale", "[sim]") {
    check_silent(1, [](Rank& rank) {
        const Layer layer{rank.device()};
        for (int step = 0; step < 3; ++step) {
            for (int i = 0; i < 3; ++i)
                layer.forward(i, layer.weight);
            for (int i = 0; i < 3; ++i) {
                layer.backward(i, layer.weight, Phase::backward_input);
                layer.backward(i, layer.weight, Phase::backward_weight);
            }
            layer.step(layer.weight);
        }
        // An evaluation, and later a backward of a micro-batch that had no forward.
        layer.forward(0, layer.weight);
        layer.step(layer.weight);
        layer.forward(0, layer.weight);
        layer.backward(0, layer.weight);
        layer.backward(9, layer.weight);
    });
}

TEST_CASE("weights that are read from a stash, or restored from it, are not stale",
          "[sim]") {
    check_silent(1, [](Rank& rank) {
        Device& device = rank.device();
        const Layer layer{device};
        const Tensor stash = device.empty({4, 4}, DType::f32);
        layer.forward(0, layer.weight);
        device.copy(stash, layer.weight);
        layer.step(layer.weight);
        layer.forward(1, layer.weight);
        layer.backward(0, stash);
        layer.backward(1, layer.weight);

        layer.forward(0, layer.weight);
        device.copy(stash, layer.weight);
        layer.step(layer.weight);
        device.copy(layer.weight, stash);
        layer.backward(0, layer.weight);
    });
}

TEST_CASE("an optimizer that steps inside of backward, layer by layer, is not stale",
          "[sim]") {
    check_silent(1, [](Rank& rank) {
        Device& device = rank.device();
        const Layer one{device};
        const Layer two{device};
        for (int step = 0; step < 2; ++step) {
            one.forward(0, one.weight);
            {
                const PhaseScope phase(device, Phase::forward, 0);
                (void)device.matmul(two.x, two.weight);
            }
            const PhaseScope phase(device, Phase::backward, 0);
            for (const Layer* layer : {&two, &one}) {
                (void)device.matmul(layer->x, layer->weight, {.transpose_b = true});
                layer->step(layer->weight);
            }
        }
    });
}

TEST_CASE("parts of a flat buffer have versions of their own", "[sim]") {
    const auto program = [](std::int64_t stepped) {
        return [stepped](Rank& rank) {
            const Layer layer{rank.device()};
            const Tensor flat = drawn(rank.device(), {8, 4}, "flat");
            layer.forward(0, flat.rows(0, 4));
            layer.step(flat.rows(stepped, 4));
            layer.backward(0, flat.rows(0, 4));
        };
    };
    check_silent(1, program(4));
    const Diagnosis found = found_by_full_check(1, program(0));
    CHECK(found.fault == "F25");
    check_names(found, {"micro-batch 0", "part of the tensor", "sgd"});
    CHECK(found.parties.size() == 3);
    CHECK(found_by_full_check(1, program(3)).fault == "F25");
}

TEST_CASE("weights gathered again after the step are fresh, in place or not", "[sim]") {
    for (const bool in_place : {false, true}) {
        const auto program = [in_place](bool again) {
            return [in_place, again](Rank& rank) {
                const Layer layer{rank.device()};
                Communicator& world = rank.world();
                const std::int64_t rows = 4 / world.size();
                const Tensor whole = rank.device().empty({4, 4}, DType::f32);
                const Tensor shard = in_place
                                         ? whole.rows(rows * rank.index(), rows)
                                         : rank.device().empty({rows, 4}, DType::f32);
                rank.device().random_normal(shard, {3, "w"}, 0, 1,
                                            rank.index() * shard.elements());
                world.all_gather(whole, shard).wait();
                for (int step = 0; step < 2; ++step) {
                    layer.forward(0, whole);
                    layer.backward(0, whole);
                    layer.step(shard);
                    if (again) world.all_gather(whole, shard).wait();
                }
            };
        };
        check_silent(2, program(true));
        const Diagnosis found = found_by_full_check(2, program(false));
        CHECK(found.fault == "F25");
        check_names(found, {"rank 0", "gathered at", "sgd", "shard"});
    }
}

TEST_CASE("replicas gathered or broadcast once, and updated everywhere, are fresh",
          "[sim]") {
    check_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        const Layer layer{device};
        const Tensor weight = device.empty({4, 4}, DType::f32);
        const Tensor part = drawn(device, {2, 4}, "part");
        rank.world().all_gather(weight, part).wait();
        rank.world().broadcast(layer.weight, 0).wait();
        for (int step = 0; step < 3; ++step) {
            for (const Tensor& tensor : {weight, layer.weight}) {
                layer.forward(0, tensor);
                layer.backward(0, tensor);
                layer.step(tensor);
            }
        }
    });
}

}  // namespace lockstep::test
