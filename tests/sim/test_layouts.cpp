// Follows values over ranks. Finds values that are reduced twice, added to a reduced
// value, not reduced, or gathered in the wrong order. Similar programs without a mistake
// pass.

#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

/// Returns the class that full checking finds; empty if it finds none.
std::string found(int ranks, const Program& program) {
    std::optional<std::string> first;
    for (World world : all_worlds()) {
        world.check = sim::CheckLevel::full;
        std::string fault;
        try {
            make_cluster_in(world, ranks)->run(program);
        } catch (const FaultError& error) {
            INFO(error.diagnosis().text());
            fault = error.diagnosis().fault;
            CHECK(!error.diagnosis().parties.empty());
        }
        if (first) CHECK(*first == fault);
        first = fault;
    }
    return *first;
}

Tensor own_values(Rank& rank, std::int64_t count = 8) {
    const Tensor values = rank.device().empty({count}, DType::f64);
    rank.device().random_normal(values, RandomStream(1, "values"), 0, 1,
                                count * rank.index());
    return values;
}

/// Uses a tensor: an operation reads it.
void use(Rank& rank, const Tensor& tensor) {
    (void)rank.device().tanh(tensor);
}

}  // namespace

TEST_CASE("a second sum is found when an operation reads it", "[sim][faults]") {
    const auto twice = [](bool read) {
        return found(3, [=](Rank& rank) {
            const Tensor x = own_values(rank);
            rank.world().all_reduce(x).wait();
            rank.world().all_reduce(x).wait();
            if (read) use(rank, x);
        });
    };
    CHECK(twice(true) == "F22");
    CHECK(twice(false).empty());  // nothing reads it, as in a benchmark
}

TEST_CASE("a second sum is found through functions, copies and another communicator",
          "[sim][faults]") {
    CHECK(found(4, [](Rank& rank) {
              const auto other = rank.world().split(0, -rank.index(), "other");
              const Tensor x = own_values(rank);
              rank.world().all_reduce(x, Reduction::mean).wait();
              const Tensor y = rank.device().zeros({8}, DType::f64);
              rank.device().add(y, x);
              rank.device().scale(y, 3);
              other->all_reduce(y).wait();
              use(rank, y);
          }) == "F22");
}

TEST_CASE("a reduce_scatter and an all_gather are an all_reduce", "[sim][faults]") {
    CHECK(found(4, [](Rank& rank) {
              const Tensor x = own_values(rank);
              const Tensor part = rank.device().empty({2}, DType::f64);
              rank.world().reduce_scatter(part, x).wait();
              rank.world().all_gather(x, part).wait();
              rank.world().all_reduce(x).wait();
              use(rank, x);
          }) == "F22");
}

TEST_CASE("harmless sums of replicated tensors", "[sim][faults]") {
    const auto silent = [](auto&& body) {
        CHECK(found(4, [&](Rank& rank) {
                  const Tensor x = own_values(rank);
                  rank.world().all_reduce(x).wait();
                  body(rank, x);
              }).empty());
    };
    SECTION("the mean of replicas, by a scaling after it") {
        silent([](Rank& rank, const Tensor& x) {
            rank.world().all_reduce(x).wait();
            rank.device().scale(x, 0.25);
            use(rank, x);
        });
    }
    SECTION("the mean of replicas, by a scaling before it") {
        silent([](Rank& rank, const Tensor& x) {
            rank.device().scale(x, 0.25);
            rank.world().all_reduce(x).wait();
            use(rank, x);
        });
    }
    SECTION("largest, smallest and mean") {
        silent([](Rank& rank, const Tensor& x) {
            rank.world().all_reduce(x, Reduction::maximum).wait();
            rank.world().all_reduce(x, Reduction::mean).wait();
            use(rank, x);
        });
    }
    SECTION("each rank's slice of it") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor total = rank.device().zeros({1}, DType::f64);
            rank.device().sum(total, x.slice(2 * rank.index(), 2));
            rank.world().all_reduce(total).wait();
            use(rank, total);
        });
    }
    SECTION("weighted differently on each rank") {
        silent([](Rank& rank, const Tensor& x) {
            rank.device().scale(x, (rank.index() + 1) / 10.0);
            rank.world().all_reduce(x).wait();
            use(rank, x);
        });
    }
    SECTION("multiplied by a matrix that differs on each rank") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor y = rank.device().matmul(x.reshaped({1, 8}),
                                                  own_values(rank, 64).reshaped({8, 8}));
            rank.world().all_reduce(y).wait();
            use(rank, y);
        });
    }
    SECTION("zeros, again and again") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor token = rank.device().zeros({2}, DType::f64);
            for (int i = 0; i < 3; ++i) {
                rank.world().all_reduce(token).wait();
                use(rank, token);
            }
            use(rank, x);
        });
    }
    SECTION("the number of ranks") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor ones = rank.device().empty({2}, DType::f64);
            rank.device().fill(ones, 1);
            rank.world().all_reduce(ones).wait();
            use(rank, ones);
            use(rank, x);
        });
    }
    SECTION("weights that each rank has changed, then averaged") {
        silent([](Rank& rank, const Tensor& x) {
            for (int round = 0; round < 2; ++round) {
                rank.device().add(x, own_values(rank), -0.1);
                rank.world().all_reduce(x).wait();
                rank.device().scale(x, 0.25);
                use(rank, x);
            }
        });
    }
    SECTION("the sum of all ranks' changes") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor moved = rank.device().empty({8}, DType::f64);
            rank.device().copy(moved, x);
            rank.device().add(x, own_values(rank), -0.1);
            rank.device().add(moved, x, -1);
            rank.world().all_reduce(moved).wait();
            use(rank, moved);
        });
    }
    SECTION("a residual that one rank adds") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor part = own_values(rank);
            if (rank.index() == 0) rank.device().add(part, x);
            rank.world().all_reduce(part).wait();
            use(rank, part);
        });
    }
    SECTION("the norm of a vector of shards") {
        silent([](Rank& rank, const Tensor& x) {
            const Tensor part = rank.device().empty({2}, DType::f64);
            rank.world().reduce_scatter(part, own_values(rank)).wait();
            const Tensor total = rank.device().zeros({1}, DType::f64);
            rank.device().multiply(part, part);
            rank.device().sum(total, part);
            rank.world().all_reduce(total).wait();
            use(rank, total);
            use(rank, x);
        });
    }
}

TEST_CASE("a term that is added to a sum and then summed again is found",
          "[sim][faults]") {
    const auto added = [](double scale_after) {
        return found(4, [=](Rank& rank) {
            const Tensor total = own_values(rank);
            rank.world().all_reduce(total).wait();
            rank.device().accumulate_rows(total, own_values(rank, 24).reshaped({3, 8}));
            rank.world().all_reduce(total).wait();
            rank.device().scale(total, scale_after);
            use(rank, total);
        });
    };
    CHECK(added(1) == "F27");
    CHECK(added(0.25).empty());
}

TEST_CASE("a gradient that backward adds to after its use is found", "[sim][faults]") {
    const auto steps = [](auto&& between) {
        return found(2, [&](Rank& rank) {
            Device& device = rank.device();
            const Tensor weight = own_values(rank);
            const Tensor gradient = device.zeros({8}, DType::f64);
            for (int step = 0; step < 3; ++step) {
                device.accumulate_rows(gradient, own_values(rank, 24).reshaped({3, 8}));
                device.sgd(weight, gradient, Tensor(), {});
                device.sgd(weight, gradient, Tensor(), {});
                between(device, gradient);
            }
        });
    };
    CHECK(steps([](Device&, const Tensor&) {}) == "F27");
    CHECK(steps([](Device& device, const Tensor& g) { device.fill(g.slice(0, 4), 0); }) ==
          "F27");
    CHECK(steps([](Device& device, const Tensor& g) { device.fill(g, 0); }).empty());
    CHECK(steps([](Device& device, const Tensor& g) { device.scale(g, 0.9); }).empty());
    CHECK(steps([](Device& device, const Tensor& g) {
              device.upload_into(g, HostTensor({8}, DType::f64));
          }).empty());
}

TEST_CASE("replicas that are updated with gradients of shards are found",
          "[sim][faults]") {
    const auto train = [](bool reduce_bias, bool reduce_weight, bool average) {
        return found(2, [=](Rank& rank) {
            Device& device = rank.device();
            Communicator& world = rank.world();
            const Tensor weight = own_values(rank, 4);
            const Tensor bias = own_values(rank, 4);
            world.broadcast(weight, 0).wait();
            world.broadcast(bias, 0).wait();
            const Tensor all = rank.index() == 0 ? own_values(rank, 24) : Tensor();
            const Tensor mine = device.empty({3, 4}, DType::f64);
            world.scatter(mine, all, 0).wait();
            for (int step = 0; step < 2; ++step) {
                for (const Tensor& parameter : {weight, bias}) {
                    const Tensor gradient = device.zeros({4}, DType::f64);
                    device.accumulate_rows(gradient, mine);
                    const bool is_bias = parameter.storage() == bias.storage();
                    if (is_bias ? reduce_bias : reduce_weight)
                        world.all_reduce(gradient).wait();
                    device.sgd(parameter, gradient, Tensor(), {});
                }
            }
            if (average) world.all_reduce(bias, Reduction::mean).wait();
            // Hashes of replicas would also find F23, but no replicas are declared here.
        });
    };
    CHECK(train(false, true, false) == "F23");
    CHECK(train(true, true, false).empty());
    CHECK(train(false, true, true).empty());
    CHECK(train(false, false, false).empty());
}

TEST_CASE("parts gathered in another order are found when they are used as the whole",
          "[sim][faults]") {
    const auto gathered = [](int step, bool sort) {
        return found(4, [=](Rank& rank) {
            Device& device = rank.device();
            const int place = rank.index() * step % 5;  // rank times `step` modulo 5
            const auto other = rank.world().split(0, place, "other");
            const Tensor part = own_values(rank, 2);
            const Tensor whole = device.empty({8}, DType::f64);
            other->all_gather(whole, part).wait();
            Tensor sorted = whole;
            if (sort) {
                sorted = device.empty({8}, DType::f64);
                for (int r = 0; r < 4; ++r) {
                    int member = 0;
                    for (int s = 0; s < 4; ++s)
                        member += s * step % 5 < r * step % 5;
                    device.copy(sorted.slice(2 * r, 2), whole.slice(2 * member, 2));
                }
            }
            use(rank, sorted);
        });
    };
    CHECK(gathered(1, false).empty());
    CHECK(gathered(3, false) == "F26");
    CHECK(gathered(3, true).empty());
}

}  // namespace lockstep::test
