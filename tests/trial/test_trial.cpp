// Tests comparisons, the distribution of inputs, and the results of a run.

#include <cmath>
#include <limits>

#include "sim/cluster.hpp"
#include "src/nn/linear.hpp"
#include "src/trial/case.hpp"
#include "src/trial/training.hpp"
#include "src/trial/values.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

HostTensor row(const std::vector<double>& values) {
    return HostTensor::of(Shape::flat(static_cast<std::int64_t>(values.size())), values);
}

}  // namespace

TEST_CASE("The largest difference of all tensors is found, with its place", "[trial]") {
    const NamedTensors expected{{"a", row({100, 1})}, {"b", row({2, 4})}};
    const Difference far =
        difference({{"a", row({100, 3})}, {"b", row({2, 3.5})}}, expected);
    CHECK(far.name == "b");
    CHECK(far.at == 1);
    CHECK(far.relative == 0.125);
    CHECK(far.absolute == 2);
    CHECK(difference(expected, expected).relative == 0);
    CHECK(difference(expected, expected).name.empty());
}

TEST_CASE("NaN and infinity are not close to any number", "[trial]") {
    const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    const HostTensor right = row({1, 2, 3});
    for (const HostTensor& wrong : {row({1, nan, 3}), row({1, infinity, 3})}) {
        CHECK_FALSE(relative_difference(wrong, right) <= 1e300);
        CHECK_FALSE(relative_difference(right, wrong) <= 1e300);
        // The tensors "a" and "c" are wrong, too, but the worst difference is in "b".
        const Difference far =
            difference({{"a", row({1})}, {"b", wrong}, {"c", row({9})}},
                       {{"a", row({2})}, {"b", right}, {"c", row({1})}});
        CHECK_FALSE(far.relative <= 1e300);
        CHECK(far.name == "b");
    }
    CHECK_FALSE(relative_difference(row({nan}), row({nan})) <= 1e300);
}

TEST_CASE("Tensors without a counterpart cannot be compared", "[trial][errors]") {
    const auto refused = [](const NamedTensors& got, const NamedTensors& expected) {
        return refusal([&] { difference(got, expected); });
    };
    CHECK_THAT(refused({}, {}), says("there is no tensor to compare"));
    CHECK_THAT(refused({}, {{"a", row({1})}}), says("'a' is expected, but missing"));
    CHECK_THAT(refused({{"a", row({1})}, {"b", row({1})}}, {{"a", row({1})}}),
               says("'b' is there, but is not expected"));
    CHECK_THAT(
        refused({{"a", row({1})}}, {{"a", row({1, 2})}}),
        says("'a' cannot be compared with the expected tensor: shapes (1) and (2)"));
}

TEST_CASE("Distributed parts make up the whole", "[trial]") {
    const Deal deal =
        GENERATE(Deal::columns, Deal::contiguous, Deal::striped, Deal::zigzag);
    const HostTensor whole = normal_values({8, 3, 4}, "whole");
    for (const int ranks : {1, 2, 4}) {
        HostTensor made(whole.shape(), whole.dtype());
        std::vector<Part> parts;
        for (int rank = 0; rank < ranks; ++rank) {
            parts.push_back(part_dealt(deal, whole.shape(), rank, ranks));
            CHECK(is_sound(parts.back()));
            put_shard(made, shard_of(whole, parts.back()), parts.back());
        }
        CHECK(cover_once(whole.shape(), parts));
        CHECK(made == whole);
    }
    CHECK_THROWS_AS(part_dealt(deal, {7, 3, 5}, 0, 2), UsageError);
}

TEST_CASE("A task's outputs are put together", "[trial]") {
    const Task twice = [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const Tensor& x = in.tensor("x");
        Tensor y = rank.device().empty(x.shape(), x.dtype());
        rank.device().copy(y, x);
        rank.device().scale(y, static_cast<double>(in.number("factor")));
        out.tensors.emplace("y", y);
        out.parts.emplace("y", in.parts.at("x"));
    };
    const HostTensor x = normal_values({4, 2}, "x");
    for (const Deal deal : {Deal::whole, Deal::columns, Deal::zigzag}) {
        const Outcome outcome = outcome_of(*sim::make_cluster(2), twice,
                                           {{{"x", {x, deal}}}, {{"factor", 2}}});
        for (std::int64_t i = 0; i < x.elements(); ++i)
            CHECK(outcome.results.at("y").at(i) == 2 * x.at(i));
    }
}

TEST_CASE("A training keeps losses, first gradients and values", "[trial]") {
    const auto trained = [](double rate) {
        return outcome_of(*sim::make_cluster(2), [&](Rank& rank) {
            Device& device = rank.device();
            Linear model({device, DType::f64, 1, "layer"}, 2, 1);
            train(rank, model.parameters(), 2, [&](int step) {
                for (Parameter* parameter : model.parameters()) {
                    device.fill(parameter->gradient, step + 1);
                    device.add(parameter->value, parameter->gradient, -rate);
                }
                Tensor loss = device.empty({1}, DType::f64);
                device.fill(loss, 1 + rank.index());
                return loss;
            });
        });
    };
    const Outcome outcome = trained(0.5);
    CHECK(outcome.results.at("loss/1").at(0) == 3);
    CHECK(outcome.results.at("grad/layer.bias").at(0) == 1);
    const double moved = outcome.results.at("layer.bias").at(0) -
                         outcome.results.at("initial/layer.bias").at(0);
    CHECK(std::abs(moved + 1.5) <= 1e-15);
    CHECK(difference(trained(0.6), outcome).relative > 1e-3);
    CHECK(named_under(outcome.results, "loss/").size() == 2);
}

TEST_CASE("A mistake is thrown, or it is the outcome", "[trial][errors]") {
    const auto sent_to_nobody = [](Rank& rank) {
        if (rank.index() == 0)
            rank.world().send(rank.device().zeros({1}, DType::f32), 1).wait();
    };
    CHECK_THROWS_AS(outcome_of(*sim::make_cluster(2), sent_to_nobody), FaultError);
    const Outcome stopped =
        outcome_of(*sim::make_cluster(2), sent_to_nobody, Mistakes::kept);
    CHECK(stopped.fault() == "F10");
    CHECK_THAT(refusal([&] { difference(stopped, stopped); }),
               says("a run that was stopped cannot be compared"));

    const auto drifted = [](Rank& rank) {
        const Tensor x = rank.device().empty({1}, DType::f64);
        rank.device().fill(x, rank.index());
        rank.keep("x", x);
    };
    CHECK_THAT(refusal([&] { outcome_of(*sim::make_cluster(2), drifted); }),
               says("ranks 0 and 1 kept different bits"));
    CHECK(outcome_of(*sim::make_cluster(2), drifted, Mistakes::kept)
              .results.at("x")
              .at(0) == 0);
}

}  // namespace lockstep::test
