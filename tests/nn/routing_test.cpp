#include "src/nn/routing.hpp"

#include <numeric>
#include <vector>

#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

using Counts = std::vector<std::int64_t>;

TEST_CASE("A routing lists the copies of each expert's tokens", "[nn]") {
    OneDevice one;
    const Routing routing =
        route(one.device, one.device.upload(i32({4, 2}, {2, 0, 3, 2, 0, 2, 3, 0})), 5);
    CHECK(routing.counts == Counts{3, 0, 3, 2, 0});
    CHECK(one.device.peek(routing.order) == i32({8}, {1, 4, 7, 0, 3, 5, 2, 6}));
    CHECK(one.device.peek(routing.rows) == i32({8}, {0, 2, 3, 0, 1, 2, 1, 3}));
}

TEST_CASE("A routing agrees with a loop over tokens", "[nn]") {
    const std::int64_t k = GENERATE(1, 2, 6);
    const std::int64_t experts = GENERATE(1, 3, 64);
    CAPTURE(k, experts);
    OneDevice one;
    const HostTensor ids = random_ids({50, k}, experts, "experts");
    std::vector<std::int32_t> order, rows;
    Counts counts;
    for (std::int64_t expert = 0; expert < experts; ++expert) {
        counts.push_back(0);
        for (std::int64_t place = 0; place < 50 * k; ++place) {
            if (ids.at(place) != static_cast<double>(expert)) continue;
            order.push_back(static_cast<std::int32_t>(place));
            rows.push_back(static_cast<std::int32_t>(place / k));
            ++counts.back();
        }
    }
    const Routing routing = route(one.device, one.device.upload(ids), experts);
    CHECK(routing.counts == counts);
    CHECK(one.device.peek(routing.order) == i32({50 * k}, order));
    CHECK(one.device.peek(routing.rows) == i32({50 * k}, rows));
}

TEST_CASE("A run of shapes only routes evenly, the first experts one more", "[nn]") {
    OneDevice one(false);
    const Tensor ids = one.device.zeros({5, 2}, DType::i32);
    CHECK(route(one.device, ids, 4).counts == Counts{3, 3, 2, 2});
    CHECK(route(one.device, ids, 5).counts == Counts(5, 2));
    CHECK(route(one.device, ids, 1).counts == Counts{10});
    const Routing routing = route(one.device, ids, 16);
    CHECK(std::accumulate(routing.counts.begin(), routing.counts.end(),
                          std::int64_t{0}) == 10);
    CHECK(routing.order.shape() == Shape{10});
    CHECK(one.count("sort_ids") == 4);
}

TEST_CASE("A routing is asked of experts, and of rows of their ids", "[nn][errors]") {
    OneDevice one;
    const Tensor ids = one.device.upload(i32({2, 1}, {0, 3}));
    CHECK_THAT(refusal([&] { route(one.device, ids, 0); }),
               says("route: 0 experts; one is expected at least"));
    CHECK_THAT(refusal([&] { route(one.device, ids, 3); }),
               says("sort_ids: index 1 is 3, outside [0, 3)"));
    CHECK_THAT(refusal([&] { route(one.device, ids.flat(), 4); }),
               says("rows of ids are expected"));
    CHECK(route(one.device, one.device.empty({0, 2}, DType::i32), 3).counts ==
          Counts{0, 0, 0});
}

}  // namespace lockstep::nn_test
