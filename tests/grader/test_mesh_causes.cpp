// What the assignment `mesh` says of numbers that are wrong: each usual mistake is made
// here by arithmetic, on what one device has.

#include <functional>
#include <numeric>

#include "lessons/assignments/mesh/grading/causes.hpp"
#include "src/comm/mesh_shape.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons::mesh;
using Catch::Matchers::ContainsSubstring;

namespace {

MeshCase case_on(const Axes& axes, int sequences = 5) {
    MeshCase of{axes, {}};
    of.job.sizes.vocabulary = 13;
    of.job.sizes.context = 12;
    of.job.sizes.layers = 1;
    of.job.sizes.block.hidden = 16;
    of.job.sizes.block.heads = 4;
    of.job.sequences = sequences;
    of.job.by_sgd = true;
    of.job.most_norm = 300;
    return of;
}

const Axes kMesh{{"cp", 3}, {"dp", 2}, {"tp", 4}};

std::vector<double> same(double value) {
    return std::vector<double>(24, value);
}

double squares(const HostTensor& tensor) {
    double sum = 0;
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        sum += tensor.at(i) * tensor.at(i);
    return sum;
}

/// The gradient's squares, times what `factor` gives for a parameter.
double weighed_squares(const OneDevice& alone,
                       const std::function<double(const std::string&)>& factor) {
    double sum = 0;
    for (const auto& [name, gradient] : alone.gradients)
        sum += factor(name) * squares(gradient);
    return sum;
}

/// Each rank's own parts of the gradient.
Parts right_parts(const OneDevice& alone, const Layout& layout) {
    Parts parts(layout.parts.size());
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
        for (const auto& [name, part] : layout.parts[rank])
            parts[rank].emplace(name, shard_of(alone.gradients.at(name), part));
    return parts;
}

void scale(HostTensor& tensor, double factor) {
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, factor * tensor.at(i));
}

/// What ranks step by if terms are added up along those axes alone, and each rank tells
/// the others of the `range`-th part of each parameter that it has.
Parts sums_along(const MeshCase& of, const std::vector<std::string>& axes, bool ranges,
                 Dealing dealing) {
    const MeshShape shape(of.axes);
    const Parts terms = terms_of(of, dealing);
    Parts sums = terms;
    for (int rank = 0; rank < of.ranks(); ++rank)
        for (auto& [name, sum] : sums[rank]) {
            const std::vector<int> replicas = shape.plane(rank, {"dp", "cp"});
            for (std::int64_t i = 0; i < sum.elements(); ++i) {
                const auto place = static_cast<std::size_t>(i) * replicas.size() /
                                   static_cast<std::size_t>(sum.elements());
                const int owner = ranges ? replicas[place] : rank;
                double value = 0;
                for (const int one : shape.plane(owner, axes))
                    value += terms[one].at(name).at(i);
                sum.set(i, value);
            }
        }
    return sums;
}

}  // namespace

TEST_CASE("A loss says which sum is missing, or is one too many", "[grader][mesh]") {
    const MeshCase of = case_on(kMesh);
    const OneDevice& alone = alone_of(of.job);
    const double loss = alone.losses.front();
    const auto cause = [&](const std::vector<double>& left) {
        return loss_cause(of, alone, left);
    };
    std::vector<double> shares(24);
    for (int rank = 0; rank < 24; ++rank)
        shares[rank] = loss * (MeshShape(kMesh).coordinate(rank, "cp") + 1) / 6;
    CHECK_THAT(cause(shares), ContainsSubstring("the ranks along cp left adds up"));
    CHECK_THAT(cause(same(loss / 6)),
               ContainsSubstring("the ranks along cp and dp left adds up"));
    CHECK_THAT(cause(same(4 * loss)),
               ContainsSubstring("4 times too large, as many as there are ranks of tp. "
                                 "Ranks of tp have the same loss"));
    CHECK_THAT(cause(same(3 * loss)),
               ContainsSubstring("ranks of cp: a sequence's tokens on one rank have"));
    CHECK_THAT(cause(same(loss / 4)), ContainsSubstring("along tp left adds up"));
    const auto& each = alone.of_sequences;
    CHECK_THAT(cause(same((each[0] + each[3]) / 2)),
               ContainsSubstring("the mean over sequences 0, 3 of the 5 alone"));
    CHECK_THAT(cause(same((each[0] + each[2] + each[4]) / 6 + (each[1] + each[3]) / 4)),
               ContainsSubstring("the mean of the replicas' means"));
    CHECK_THAT(cause(same(1.1 * loss)),
               ContainsSubstring("look at what each rank reads"));
}

TEST_CASE("A norm says what it counts how often", "[grader][mesh]") {
    const MeshCase of = case_on(kMesh);
    const OneDevice& alone = alone_of(of.job);
    const Layout layout = layout_of(of);
    const auto shared_out = [&](const std::string& name) {
        return layout.is_shared_out(name);
    };
    const double whole = weighed_squares(alone, [](const std::string&) { return 1.0; });
    const auto cause = [&](const std::vector<double>& left) {
        return norm_cause(of, alone, layout, left);
    };
    CHECK_THAT(cause(same(weighed_squares(alone,
                                          [&](const std::string& name) {
                                              return shared_out(name) ? 1.0 : 4.0;
                                          }))),
               ContainsSubstring("share out counts once, what all of them have alike "
                                 "(norms, some biases, positions) 4 times"));
    CHECK_THAT(cause(same(6 * whole)), ContainsSubstring("counts 6 times"));
    CHECK_THAT(cause(same(whole / 6)), ContainsSubstring("along cp and dp left adds up"));
    CHECK_THAT(cause(same(std::sqrt(whole))), ContainsSubstring("it is the norm"));
    CHECK_THAT(cause(same(0.09)), ContainsSubstring("when it was clipped"));
    std::vector<double> own(24);
    for (int rank = 0; rank < 24; ++rank)
        for (const auto& [name, part] : layout.parts[rank])
            own[rank] += squares(shard_of(alone.gradients.at(name), part));
    CHECK_THAT(cause(own), ContainsSubstring("what one rank of tp holds"));
    CHECK_THAT(cause(same(1.1 * whole)), ContainsSubstring("neither a sum over too few"));
}

TEST_CASE("A gradient says which terms it has", "[grader][mesh]") {
    const MeshCase of = case_on({{"cp", 3}, {"dp", 2}, {"tp", 2}});
    const OneDevice& alone = alone_of(of.job);
    const Layout layout = layout_of(of);
    const auto cause = [&](const Parts& stepped) {
        return gradient_cause(of, alone, layout, stepped);
    };
    CHECK(cause(right_parts(alone, layout)).empty());

    for (const Dealing dealing : {Dealing::in_turn, Dealing::in_stretches}) {
        // Whole, these sums are right: the deal is one of those that there may be.
        CHECK(cause(sums_along(of, {"dp", "cp"}, false, dealing)).empty());
        CHECK_THAT(cause(sums_along(of, {"cp"}, false, dealing)),
                   ContainsSubstring("what the ranks along dp stepped by adds up"));
        CHECK_THAT(cause(sums_along(of, {}, false, dealing)),
                   ContainsSubstring("the ranks along cp and dp stepped by adds up"));
        CHECK_THAT(cause(sums_along(of, {"dp"}, true, dealing)),
                   ContainsSubstring("the sum over the ranks along dp alone: ranks along "
                                     "cp have terms of their own, too"));
        CHECK_THAT(cause(sums_along(of, {}, true, dealing)),
                   ContainsSubstring("those of all ranks along dp and cp are to be"));
    }
}

TEST_CASE("A gradient says which parameters are too large", "[grader][mesh]") {
    const MeshCase of = case_on({{"cp", 3}, {"dp", 2}, {"tp", 2}});
    const OneDevice& alone = alone_of(of.job);
    const Layout layout = layout_of(of);
    const auto cause_if = [&](const std::function<void(const std::string& name, int rank,
                                                       HostTensor& values)>& change) {
        Parts parts = right_parts(alone, layout);
        for (int rank = 0; rank < of.ranks(); ++rank)
            for (auto& [name, values] : parts[rank])
                change(name, rank, values);
        return gradient_cause(of, alone, layout, parts);
    };
    CHECK_THAT(
        cause_if([](const std::string&, int, HostTensor& values) { scale(values, 3); }),
        ContainsSubstring("all gradients are 3 times too large, as many as there "
                          "are ranks of cp"));
    CHECK_THAT(cause_if([](const std::string&, int, HostTensor& values) {
                   scale(values, 1.0 / 6);
               }),
               ContainsSubstring("6 times too small, as many as there "
                                 "are ranks of cp and dp"));
    CHECK_THAT(cause_if([&](const std::string& name, int, HostTensor& values) {
                   if (!layout.is_shared_out(name)) scale(values, 2);
               }),
               ContainsSubstring("the gradients of what all ranks of tp have, as "
                                 "transformer.h.0.attn.c_proj.bias, are 2 times"));
    CHECK_THAT(
        cause_if([](const std::string&, int, HostTensor& values) { scale(values, 0); }),
        ContainsSubstring("there was no update"));
    CHECK_THAT(cause_if([](const std::string&, int, HostTensor& values) {
                   for (std::int64_t i = values.elements() / 2; i < values.elements();
                        ++i)
                       values.set(i, 0);
               }),
               ContainsSubstring("some weights have their new values"));
    CHECK_THAT(cause_if([](const std::string& name, int rank, HostTensor& values) {
                   if (name == "lm_head.weight" && rank == 4) scale(values, 1.1);
               }),
               ContainsSubstring("ranks 0 and 4 hold the same part of lm_head.weight"));
    CHECK_THAT(cause_if([](const std::string& name, int, HostTensor& values) {
                   if (name == "lm_head.weight") scale(values, 1.1);
               }),
               ContainsSubstring("the gradient of lm_head.weight"));
}
