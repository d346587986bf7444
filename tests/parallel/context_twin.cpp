#include "tests/parallel/context_twin.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::test {

namespace {

struct OfRank {
    HostTensor y, dx;
};

OfRank attend(Device& device, Module& attention, const HostTensor& x,
              const HostTensor& dy) {
    Saved saved;
    const Tensor y = attention.forward(device.upload(x), saved);
    HostTensor whole = device.peek(y);
    const Tensor dx = attention.backward(device.upload(dy), saved);
    return {std::move(whole), device.peek(dx)};
}

}  // namespace

HostTensor Problem::x() const {
    HostTensor values = normal_values({tokens, batch, columns()}, "x");
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, scale * values.at(i));
    return values.as(dtype);
}

HostTensor Problem::dy() const {
    return normal_values({tokens, batch, sizes.heads * width}, "dy").as(dtype);
}

Attended attend_alone(const Problem& problem) {
    Attended result;
    result.report = classroom(1)->run([&](Rank& rank) {
        CoreAttention attention(rank.device(), problem.sizes);
        OfRank own = attend(rank.device(), attention, problem.x(), problem.dy());
        result.y = std::move(own.y);
        result.dx = std::move(own.dx);
    });
    return result;
}

Attended attend_by(const Problem& problem, int ranks, TokenOrder order,
                   const MakeAttending& make, sim::CheckLevel check) {
    const auto count = static_cast<std::size_t>(ranks);
    std::vector<HostTensor> y(count), dx(count);
    Attended result;
    result.report = classroom(ranks, true, check)->run([&](Rank& rank) {
        const TokenDeal deal{order, ranks, rank.index()};
        const auto attention = make(rank.device(), rank.world());
        OfRank own = attend(rank.device(), *attention, dealt_rows(problem.x(), deal),
                            dealt_rows(problem.dy(), deal));
        const auto place = static_cast<std::size_t>(rank.index());
        y[place] = std::move(own.y);
        dx[place] = std::move(own.dx);
    });
    result.y = whole_sequence(y, order);
    result.dx = whole_sequence(dx, order);
    return result;
}

Attended attend_shared(const Problem& problem, int ranks, ContextMethod method,
                       TokenOrder order, sim::CheckLevel check) {
    return attend_by(
        problem, ranks, order,
        [&](Device& device, Communicator& group) {
            return make_context_attention(method, device, group, problem.sizes, order);
        },
        check);
}

sim::ClusterOptions shapes_only(int ranks) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    return options;
}

RunReport attend_zeros(const Problem& problem, ContextMethod method, TokenOrder order,
                       Passes passes, sim::ClusterOptions options) {
    return sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto attention =
            make_context_attention(method, device, rank.world(), problem.sizes, order);
        const std::int64_t share = problem.tokens / rank.size();
        const Tensor x =
            device.zeros({share, problem.batch, problem.columns()}, problem.dtype);
        Saved saved;
        const Tensor y = attention->forward(x, saved);
        if (passes == Passes::both)
            attention->backward(device.zeros(y.shape(), y.dtype()), saved);
    });
}

double distance(const Attended& shared, const Attended& alone) {
    const double y = relative_difference(shared.y, alone.y);
    const double dx = relative_difference(shared.dx, alone.dx);
    return std::isnan(y) || std::isnan(dx) ? NAN : std::max(y, dx);
}

}  // namespace lockstep::test
