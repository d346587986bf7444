// F29: which ranks may use the same random numbers, and which ranks must.

#include "src/comm/rank.hpp"
#include "tests/sim/watched.hpp"

namespace lockstep::test {

namespace {

/// Multiplies by noise in a forward phase, then sums a gradient over the world. If
/// `parts`, a sum over all ranks comes before the noise.
Program noisy(std::function<RandomStream(int rank)> stream, bool parts,
              bool draw_in_forward = true) {
    return [=](Rank& rank) {
        Device& device = rank.device();
        const Tensor y = device.zeros({2, 4}, DType::f32);
        device.random_normal(y, {9, "y"}, 0, 1, 8 * rank.index());
        const Tensor noise = device.empty({2, 4}, DType::f32);
        if (!draw_in_forward) device.random_normal(noise, stream(rank.index()), 1, 0.5);
        {
            const PhaseScope phase(device, Phase::forward, 0);
            if (parts) rank.world().all_reduce(device.zeros({8}, DType::f32)).wait();
            if (draw_in_forward)
                device.random_normal(noise, stream(rank.index()), 1, 0.5);
            device.multiply(y, noise);
        }
        rank.world().all_reduce(y).wait();
    };
}

RandomStream one(int /*rank*/) {
    return {5, "noise"};
}
RandomStream own(int rank) {
    return {static_cast<std::uint64_t>(rank), "noise"};
}

}  // namespace

TEST_CASE("replicas with different noise, and parts with the same noise, are right",
          "[sim]") {
    check_silent(4, noisy(own, false));
    check_silent(4, noisy(one, true));
    // A random tensor that is drawn outside of forward may be a parameter.
    check_silent(4, noisy(one, false, false));
    CHECK(found_by_full_check(4, noisy(one, false)).fault == "F29");
}

TEST_CASE("rows scaled by noise are also masked", "[sim]") {
    const auto program = [](RandomStream (*stream)(int rank)) {
        return [stream](Rank& rank) {
            Device& device = rank.device();
            const Tensor y = device.zeros({2, 4}, DType::f32);
            device.random_normal(y, {9, "y"}, 0, 1, 8 * rank.index());
            const Tensor noise = device.empty({2}, DType::f32);
            {
                const PhaseScope phase(device, Phase::forward, 0);
                device.random_normal(noise, stream(rank.index()), 1, 0.5);
                device.scale_rows(y, noise);
            }
            rank.world().all_reduce(y).wait();
        };
    };
    check_silent(4, program(own));
    CHECK(found_by_full_check(4, program(one)).fault == "F29");
}

TEST_CASE("noise that is drawn by global position differs on replicas", "[sim]") {
    check_silent(4, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor y = device.zeros({2, 4}, DType::f32);
        {
            const PhaseScope phase(device, Phase::forward, 0);
            const Tensor noise = device.empty({2, 4}, DType::f32);
            device.random_uniform(noise, {5, "noise"}, 0, 2, 8 * rank.index());
            device.multiply(y, noise);
        }
        rank.world().all_reduce(y).wait();
    });
}

TEST_CASE("one mask over replicas of an activation is right, shaped or not", "[sim]") {
    const auto program = [](bool own_seed) {
        return [own_seed](Rank& rank) {
            Device& device = rank.device();
            const PhaseScope phase(device, Phase::forward, 0);
            const Tensor y = device.zeros({2, 4}, DType::f32);
            rank.world().all_reduce(y).wait();
            const Tensor mask = device.empty({2, 4}, DType::f32);
            device.random_uniform(mask, own(own_seed ? rank.index() : 0), 0, 1);
            device.scale(mask, 2);
            device.scale(mask, device.zeros({1}, DType::f32));
            device.multiply(y, mask);
            rank.world().all_reduce(device.zeros({4}, DType::f32)).wait();
        };
    };
    check_silent(4, program(false));
    const Diagnosis found = found_by_full_check(4, program(true));
    CHECK(found.fault == "F29");
    CHECK(found.parties.size() == 4);
    check_names(found, {"the same on all ranks of world", "rank 1", "rank 0", "seed 1"});
}

TEST_CASE("columns of one mask, drawn with a pitch, are recognized as different or equal",
          "[sim]") {
    const auto program = [](std::function<RandomPart(int rank)> part) {
        return [part](Rank& rank) {
            Device& device = rank.device();
            const Tensor y = device.zeros({2, 4}, DType::f32);
            device.random_normal(y, {9, "y"}, 0, 1, 8 * rank.index());
            const Tensor mask = device.empty({2, 4}, DType::f32);
            {
                const PhaseScope phase(device, Phase::forward, 0);
                device.random_uniform(mask, {5, "mask"}, 0, 2, part(rank.index()));
                device.multiply(y, mask);
            }
            rank.world().all_reduce(y).wait();
        };
    };
    check_silent(4, program([](int rank) { return RandomPart{4 * rank, 16}; }));
    check_silent(4, program([](int rank) { return RandomPart{4, 16 + 4 * rank}; }));
    const Diagnosis found = found_by_full_check(4, program([](int) {
                                                    return RandomPart{4, 16};
                                                }));
    CHECK(found.fault == "F29");
    says(found, "numbers 4 to 7 and so on, rows 16 apart");
}

TEST_CASE("gathered columns, drawn with a pitch, are no misplaced shards", "[sim]") {
    check_silent(2, [](Rank& rank) {
        Device& device = rank.device();
        const Tensor whole = device.empty({4, 4}, DType::f32);
        const Tensor part = device.empty({2, 4}, DType::f32);
        device.random_normal(part, {5, "weight"}, 0, 1, {8 - 8 * rank.index(), 16});
        rank.world().all_gather(whole, part).wait();
        device.scale(device.tanh(whole), 2);
    });
}

}  // namespace lockstep::test
