// Declared replicas that step with different gradients (F23) or start with different
// values (F24) are found. Correct programs that look similar pass.

#include "src/comm/expect.hpp"
#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "tests/sim/watched.hpp"

namespace lockstep::test {

namespace {

Tensor ones(Rank& rank) {
    Tensor weight = rank.device().empty({4}, DType::f32);
    rank.device().fill(weight, 1);
    weight.set_label("norm.weight");
    return weight;
}

/// Returns a gradient that is the same on all ranks with the same `place`.
Tensor gradient_of(Rank& rank, int place, int step) {
    Tensor gradient = rank.device().empty({4}, DType::f32);
    rank.device().random_normal(gradient, {9, "gradient"}, 0, 1, 400 * place + 4 * step);
    return gradient;
}

void sgd(Rank& rank, const Tensor& weight, const Tensor& gradient) {
    rank.device().sgd(weight, gradient, Tensor(), {.learning_rate = 0.1});
}

/// Makes three steps. In each step a rank uses the gradient of `place(rank, step)`.
template <typename Place>
Program stepping(Place place) {
    return [place](Rank& rank) {
        const Tensor weight = ones(rank);
        declare_replicas(rank.world(), weight, "norm.weight");
        for (int step = 0; step < 3; ++step)
            sgd(rank, weight, gradient_of(rank, place(rank.index(), step), step));
    };
}

}  // namespace

TEST_CASE("declared replicas with equal steps are silent", "[sim]") {
    correct(4, stepping([](int, int) { return 0; }));
    correct(1, stepping([](int rank, int) { return rank; }));
}

TEST_CASE("F23: a declared replica steps with another gradient", "[sim][errors]") {
    const Diagnosis one_odd = found_by_full_check(
        4, stepping([](int rank, int step) { return rank == 2 && step == 1 ? 1 : 0; }));
    CHECK(one_odd.fault == "F23");
    check_names(one_odd, {"in step 2 ranks 0–3 hold the same norm.weight",
                          "declared a replica over world at tests/sim/",
                          "element [0] of the gradient", "on ranks 0–1, 3 (sgd at",
                          "on rank 2 (sgd at", "nothing is known to have reduced it"});
    says(one_odd, "4 of 4 elements differ");
    says(one_odd, "complete_gradients()");
    const Diagnosis all_odd =
        found_by_full_check(4, stepping([](int rank, int) { return rank; }));
    CHECK(all_odd.fault == "F23");
    check_names(all_odd, {"in step 1", "on rank 0 (sgd", "on rank 1 (sgd"});
    says(all_odd, "ranks 2–3 have yet other gradients");
}

TEST_CASE("F23: a gradient that differs only by rounding is reported as such",
          "[sim][errors]") {
    const Diagnosis found = found_by_full_check(2, [](Rank& rank) {
        const Tensor weight = ones(rank);
        declare_replicas(rank.world(), weight, "norm.weight");
        const Tensor gradient = gradient_of(rank, 0, 0);
        if (rank.index() == 1) rank.device().scale(gradient, 1 + 1e-6);
        sgd(rank, weight, gradient);
    });
    CHECK(found.fault == "F23");
    says(found, "differ only by rounding");
}

TEST_CASE("F23: a gradient is reduced only over the wrong mesh axis", "[sim][errors]") {
    const auto program = [](bool over_tp) {
        return [over_tp](Rank& rank) {
            const Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
            const Tensor weight = ones(rank);
            declare_replicas(mesh["tp"], weight, "norm.weight");
            for (int step = 0; step < 3; ++step) {
                const Tensor gradient = gradient_of(rank, rank.index(), step);
                if (over_tp) mesh["tp"].all_reduce(gradient).wait();
                mesh["dp"].all_reduce(gradient).wait();
                sgd(rank, weight, gradient);
            }
        };
    };
    correct(4, program(true));
    const Diagnosis found = found_by_full_check(4, program(false));
    CHECK(found.fault == "F23");
    check_names(found, {"over tp", "it was reduced by all_reduce(sum, 4 x f32) of dp"});
}

TEST_CASE("F23: replicas are recognized if ranks declare them in different orders",
          "[sim][errors]") {
    const Diagnosis found = found_by_full_check(2, [](Rank& rank) {
        const Tensor weight = ones(rank);
        const Tensor bias = ones(rank);
        if (rank.index() == 0) declare_replicas(rank.world(), bias, "bias");
        declare_replicas(rank.world(), weight, "weight");
        if (rank.index() == 1) declare_replicas(rank.world(), bias, "bias");
        sgd(rank, weight, gradient_of(rank, 0, 0));
        sgd(rank, bias, gradient_of(rank, rank.index(), 1));
    });
    CHECK(found.fault == "F23");
    check_names(found, {"the same bias"});
}

TEST_CASE("declared replicas belong to one group; other groups have other values",
          "[sim]") {
    correct(4, [](Rank& rank) {
        const Mesh mesh(rank.world(), {{"pp", 2}, {"tp", 2}});
        const Tensor weight = ones(rank);
        declare_replicas(mesh["tp"], weight, "norm.weight");
        for (int step = 0; step < 3; ++step)
            sgd(rank, weight, gradient_of(rank, mesh.coordinate("pp"), step));
    });
}

TEST_CASE("steps that all ranks skip, and updates of shards, are silent", "[sim]") {
    correct(2, [](Rank& rank) {
        const Tensor weight = ones(rank);
        const Tensor bias = ones(rank);
        bias.set_label("norm.bias");
        // The ranks declare in different orders.
        if (rank.index() == 0) declare_replicas(rank.world(), bias, "norm.bias");
        declare_replicas(rank.world(), weight, "norm.weight");
        if (rank.index() == 1) declare_replicas(rank.world(), bias, "norm.bias");
        for (int step = 0; step < 4; ++step) {
            const Tensor gradient = gradient_of(rank, 0, step);
            if (step % 2 == 0) sgd(rank, bias, gradient);
            if (step == 1) continue;
            // As in ZeRO: each rank updates its half, then both halves are gathered.
            const Tensor half = weight.slice(std::int64_t{2} * rank.index(), 2);
            sgd(rank, half, gradient.slice(std::int64_t{2} * rank.index(), 2));
            rank.world().all_gather(weight, half).wait();
        }
    });
}

TEST_CASE("a new tensor at a declared tensor's address is another tensor", "[sim]") {
    correct(2, [](Rank& rank) {
        for (int model = 0; model < 3; ++model) {
            const Tensor weight = ones(rank);
            if (model == 0) declare_replicas(rank.world(), weight, "norm.weight");
            sgd(rank, weight, gradient_of(rank, model == 0 ? 0 : rank.index(), 0));
        }
    });
}

TEST_CASE("F24: declared replicas that start apart", "[sim][errors]") {
    const Diagnosis found = found_by_full_check(4, [](Rank& rank) {
        const Tensor weight = ones(rank);
        declare_replicas(rank.world(), weight, "norm.weight");
        if (rank.index() == 3) rank.device().fill(weight, 2);
        for (int step = 0; step < 3; ++step)
            sgd(rank, weight, gradient_of(rank, rank.index() / 3, step));
    });
    CHECK(found.fault == "F24");
    check_names(found, {"before step 1 the replicas of norm.weight over world differ",
                        "rank 3 holds 2, written by fill at",
                        "they were declared replicas at tests/sim/"});
}

TEST_CASE("F24: one different start explains why all other gradients differ",
          "[sim][errors]") {
    const Diagnosis found = found_by_full_check(2, [](Rank& rank) {
        const Tensor first = ones(rank);
        const Tensor second = ones(rank);
        declare_replicas(rank.world(), first, "first");
        declare_replicas(rank.world(), second, "second");
        rank.device().fill(second, rank.index());
        sgd(rank, first, gradient_of(rank, rank.index(), 0));
        sgd(rank, second, gradient_of(rank, rank.index(), 0));
    });
    CHECK(found.fault == "F24");
    check_names(found, {"replicas of second over world"});
}

TEST_CASE("F24: a declared replica that one rank writes to between steps",
          "[sim][errors]") {
    const Diagnosis found = found_by_full_check(2, [](Rank& rank) {
        const Tensor weight = ones(rank);
        declare_replicas(rank.world(), weight, "norm.weight");
        for (int step = 0; step < 3; ++step) {
            if (step == 2 && rank.index() == 1) rank.device().scale(weight, 0.5);
            sgd(rank, weight, gradient_of(rank, 0, step));
        }
    });
    CHECK(found.fault == "F24");
    check_names(found, {"before step 3", "written by scale", "written by sgd"});
}

namespace {

/// Three steps of AdamW on one parameter. A bf16 parameter has an f32 master. The
/// gradient is the sum of the ranks' terms, or only the rank's own term.
Program with_optimizer(DType dtype, bool adds_up, bool declares_late = false) {
    return [=](Rank& rank) {
        Device& device = rank.device();
        Parameter weight("weight", device.zeros({4}, dtype), device.zeros({4}, dtype));
        const auto declare = [&] {
            replicate_over(rank.world(), {&weight}, Placement::Kind::partial);
        };
        if (!declares_late) declare();
        const auto optimizer = make_optimizer<AdamW>({&weight}, AdamWOptions{});
        if (declares_late) declare();
        for (int step = 0; step < 3; ++step) {
            device.random_normal(weight.gradient, {9, "gradient"}, 0, 1,
                                 400 * rank.index() + 4 * step);
            if (adds_up) rank.world().all_reduce(weight.gradient).wait();
            optimizer->step();
        }
    };
}

/// Offload: gradients are copied to the host, the host updates its copy of the parameter,
/// and the new values are copied back.
Program offloaded(DType dtype, bool adds_up, bool declares) {
    return [=](Rank& rank) {
        Device& device = rank.device();
        Device& host = rank.host();
        Parameter weight("weight", device.zeros({4}, dtype), device.zeros({4}, dtype));
        replicate_over(rank.world(), {&weight}, Placement::Kind::partial);
        const PinnedMemory pinned(host);
        Parameter there("weight", host.zeros({4}, dtype), host.zeros({4}, dtype));
        if (declares) replicate_over(rank.world(), {&there}, Placement::Kind::partial);
        const auto optimizer = make_optimizer<AdamW>({&there}, AdamWOptions{});
        for (int step = 0; step < 3; ++step) {
            device.random_normal(weight.gradient, {9, "gradient"}, 0, 1,
                                 400 * rank.index() + 4 * step);
            if (adds_up) rank.world().all_reduce(weight.gradient).wait();
            device.start_copy(there.gradient, weight.gradient).wait();
            optimizer->step();
            device.start_copy(weight.value, there.value).wait();
        }
    };
}

}  // namespace

TEST_CASE("F23: an optimizer with masters in f32 is watched as one without",
          "[sim][errors][bf16]") {
    for (const DType dtype : {DType::f32, DType::bf16})
        for (const bool declares_late : {false, true}) {
            CAPTURE(name_of(dtype), declares_late);
            correct(2, with_optimizer(dtype, true, declares_late));
            const Diagnosis found =
                found_by_full_check(2, with_optimizer(dtype, false, declares_late));
            CHECK(found.fault == "F23");
            check_names(found,
                        {"in step 1 ranks 0–1 hold the same weight, declared a replica "
                         "over world at tests/sim/test_declared_replicas.cpp:",
                         "nothing is known to have reduced it"});
        }
}

TEST_CASE("F23: replicas on the host are watched if they are declared there",
          "[sim][errors][host]") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        CAPTURE(name_of(dtype));
        correct(2, offloaded(dtype, true, true));
        const Diagnosis found = found_by_full_check(2, offloaded(dtype, false, true));
        CHECK(found.fault == "F23");
        check_names(found, {"in step 1 ranks 0–1 hold the same weight"});
        // The checker does not know that a copy of a replica is a replica, see
        // Device::start_copy.
        correct(2, offloaded(dtype, false, false));
    }
}

TEST_CASE(
    "F23: if some replicas are left out of a sum, the ranks of the missing terms are "
    "named",
    "[sim][faults]") {
    // As with tied weights in two pipelines: the first and the last stages sum their
    // gradients along dp, and then along pp. One pipeline forgets the sum along pp.
    const auto program = [](const std::function<void(Mesh&, const Tensor&)>& sums) {
        return [sums](Rank& rank) {
            Device& device = rank.device();
            Mesh mesh(rank.world(), {{"pp", 2}, {"dp", 2}});
            const Tensor weight = device.zeros({3, 4}, DType::f32);
            declare_replicas(mesh["dp"], weight, "table");
            const Tensor gradient = device.zeros({3, 4}, DType::f32);
            const Tensor dy = device.empty({2, 3}, DType::f32);
            device.random_normal(dy, RandomStream(rank.index(), "dy"), 0, 1);
            const Tensor x = device.zeros({2, 4}, DType::f32);
            device.fill(x, 1);
            device.matmul_into(gradient, dy, x,
                               {.transpose_a = true, .accumulate = true});
            sums(mesh, gradient);
            device.sgd(weight, gradient, Tensor(), {});
        };
    };
    const Diagnosis later =
        found_by_full_check(4, program([](Mesh& mesh, const Tensor& gradient) {
                                mesh["dp"].all_reduce(gradient).wait();
                                if (mesh.coordinate("dp") == 0)
                                    mesh["pp"].all_reduce(gradient).wait();
                            }));
    CHECK(later.fault == "F23");
    says(later,
         "the gradient on rank 1 lacks the terms of ranks 2–3, which "
         "all_reduce(sum, 12 x f32) of pp at");
    says(later, "has added on rank 0");
    says(later, "a list of groups, that makes some ranks leave out a sum");

    const Diagnosis none =
        found_by_full_check(4, program([](Mesh& mesh, const Tensor& gradient) {
                                mesh["pp"].all_reduce(gradient).wait();
                            }));
    // Nothing was summed over the replicas, so each replica may have its own terms.
    says(none, "not over dp");

    const Diagnosis twice =
        found_by_full_check(4, program([](Mesh& mesh, const Tensor& gradient) {
                                mesh["dp"].all_reduce(gradient).wait();
                                mesh["pp"].all_reduce(gradient).wait();
                                if (mesh.coordinate("dp") == 0)
                                    mesh["pp"].all_reduce(gradient).wait();
                            }));
    CHECK(twice.fault == "F22");

    const Diagnosis added =
        found_by_full_check(4, program([](Mesh& mesh, const Tensor& gradient) {
                                mesh["dp"].all_reduce(gradient).wait();
                                if (mesh.coordinate("dp") == 1) return;
                                Device& device = *gradient.device();
                                const Tensor again = device.empty({3, 4}, DType::f32);
                                device.copy(again, gradient);
                                device.add(gradient, again);
                            }));
    CHECK(added.fault == "F23");
    says(added,
         "has the terms of rank 0 once, but the gradient on rank 0 has them 2 times");

    check_silent(4, program([](Mesh& mesh, const Tensor& gradient) {
                     mesh["pp"].all_reduce(gradient).wait();
                     mesh["dp"].all_reduce(gradient).wait();
                 }));
}

TEST_CASE("F23: the terms of buckets are also followed", "[sim][faults]") {
    const Diagnosis found = found_by_full_check(4, [](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"dp", 2}, {"cp", 2}});
        const Tensor weights = device.zeros({2, 4}, DType::f32);
        declare_replicas(rank.world(), weights.slice(0, 4), "a");
        declare_replicas(rank.world(), weights.slice(4, 4), "b");
        const Tensor bucket = device.zeros({8}, DType::f32);
        const Tensor rows = device.empty({3, 4}, DType::f32);
        device.random_normal(rows, RandomStream(rank.index(), "rows"), 0, 1);
        for (const int i : {0, 1})
            device.accumulate_rows(bucket.slice(std::int64_t{4} * i, 4), rows);
        mesh["cp"].all_reduce(bucket).wait();
        if (mesh.coordinate("cp") == 0) mesh["dp"].all_reduce(bucket).wait();
        for (const int i : {0, 1})
            device.sgd(weights.slice(std::int64_t{4} * i, 4),
                       bucket.slice(std::int64_t{4} * i, 4), Tensor(), {});
    });
    CHECK(found.fault == "F23");
    says(found, "the gradient on rank 1 lacks the terms of ranks 2–3");
}

}  // namespace lockstep::test
