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

TEST_CASE("A routing equals a loop over tokens", "[nn]") {
    const std::int64_t k = GENERATE(1, 2, 6);
    const std::int64_t experts = GENERATE(1, 3, 64);
    CAPTURE(k, experts);
    OneDevice one;
    const HostTensor ids = ids_below({50, k}, experts, "experts");
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

TEST_CASE("A run of shapes only routes evenly; the first experts get one more", "[nn]") {
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

TEST_CASE("A routing refuses experts and ids that do not fit", "[nn][errors]") {
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

TEST_CASE("First choices come before second ones, if this is requested", "[nn]") {
    OneDevice one;
    const HostTensor ids = i32({4, 2}, {2, 0, 3, 2, 0, 2, 3, 0});
    const Tensor on_device = one.device.upload(ids);
    const Routing routing = route(one.device, on_device, 5, {CopyOrder::choices_first});
    CHECK(routing.counts == Counts{3, 0, 3, 2, 0});
    CHECK(one.device.peek(routing.order) == i32({8}, {4, 1, 7, 0, 3, 5, 2, 6}));
    CHECK(one.device.peek(routing.rows) == i32({8}, {2, 0, 3, 0, 1, 2, 1, 3}));
    CHECK(counts_by_choice(one.device, on_device, 5, {}, SourceLine::here()) ==
          Counts{1, 0, 1, 2, 0, 2, 0, 2, 0, 0});

    const Routing kept =
        first_of_each(one.device, routing, {2, 0, 1, 2, 0}, SourceLine::here());
    CHECK(kept.counts == Counts{2, 0, 1, 2, 0});
    CHECK(one.device.peek(kept.order) == i32({5}, {4, 1, 0, 2, 6}));
    CHECK(one.device.peek(kept.rows) == i32({5}, {2, 0, 0, 1, 3}));
}

TEST_CASE(
    "A load is split into whole copies; the rest goes to experts that rounding cost most",
    "[nn]") {
    CHECK(dealt_by_load(10, 4, {}) == Counts{3, 3, 2, 2});
    CHECK(dealt_by_load(10, 4, {1, 1, 1, 1}) == Counts{3, 3, 2, 2});
    CHECK(dealt_by_load(10, 3, {1, 0, 3}) == Counts{3, 0, 7});
    CHECK(dealt_by_load(7, 3, {0.1, 0.1, 0.1}) == Counts{3, 2, 2});
    CHECK(dealt_by_load(0, 3, {1, 2, 3}) == Counts{0, 0, 0});
    CHECK(dealt_by_load(5, 4, {5, 8, 5, 2}) == Counts{1, 2, 1, 1});
    for (const std::vector<double>& load : {std::vector<double>{1, -1, 2},
                                            {0, 0, 0},
                                            {1, 2},
                                            {INFINITY, 1, 1},
                                            {NAN, 1, 1}})
        CHECK_THAT(refusal([&] { dealt_by_load(5, 3, load); }),
                   says("one number for each of 3 experts is expected, none negative"));
    // The counts of all choices add up to the load.
    OneDevice one(false);
    const Tensor ids = one.device.zeros({5, 3}, DType::i32);
    const Counts by_choice =
        counts_by_choice(one.device, ids, 2, {1, 2}, SourceLine::here());
    CHECK(by_choice == Counts{1, 3, 2, 3, 2, 4});
}

TEST_CASE("Experts accept copies in the order of ranks, or first choices first", "[nn]") {
    // Two ranks and two experts. Each expert accepts up to three copies.
    CountsOfRanks counts{{{2, 4}, {3, 1}}, 0};
    CHECK(all_copies(counts) == 10);
    CHECK(shares_of(counts, 2) == std::vector<double>{0.5, 0.5});
    CHECK(kept_counts(counts, 2, 3) == Counts{2, 3});
    counts.own = 1;
    CHECK(kept_counts(counts, 2, 3) == Counts{1, 0});
    // The ranks' first choices are 1, 2 and 2, 1; their second choices 1, 2 and 1, 0.
    counts = {{{1, 2, 1, 2}, {2, 1, 1, 0}}, 0};
    CHECK(shares_of(counts, 2) == std::vector<double>{0.5, 0.5});
    CHECK(kept_counts(counts, 2, 4) == Counts{2, 3});
    counts.own = 1;
    CHECK(kept_counts(counts, 2, 4) == Counts{2, 1});
    CHECK(expert_capacity(1, 10, 4) == 3);
    CHECK(expert_capacity(1.25, 16, 4) == 5);
    CHECK(expert_capacity(1.1, 200, 4) == 55);  // in f64, 1.1 * 50 > 55
    CHECK(expert_capacity(1e300, 10, 4) == 10);
    CHECK(shares_of({{{0, 0}}, 0}, 2) == std::vector<double>{0, 0});
}

}  // namespace lockstep::nn_test
