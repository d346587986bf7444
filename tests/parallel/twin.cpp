#include "tests/parallel/twin.hpp"

#include <cmath>
#include <cstring>

#include "src/core/part.hpp"
#include "src/parallel/placement.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::uint64_t kSeed = 7;

/// Column block `rank` of `ranks`.
HostTensor columns_of_rank(const HostTensor& whole, int ranks, int rank) {
    const std::int64_t columns = whole.shape().columns() / ranks;
    const Part part = column_part({whole.shape().rows(), whole.shape().columns()},
                                  rank * columns, columns);
    HostTensor own(whole.shape().with_last(columns), whole.dtype());
    const HostTensor matrix = shard_of(whole, part);
    std::memcpy(own.data(), matrix.data(), static_cast<std::size_t>(own.bytes()));
    return own;
}

HostTensor dealt(const HostTensor& whole, Held held, int ranks, int rank) {
    if (held == Held::columns) return columns_of_rank(whole, ranks, rank);
    if (held == Held::whole) return whole;
    const std::int64_t rows = whole.shape()[0] / ranks;
    return whole.rows(rank * rows, rows);
}

HostTensor collected(const std::vector<HostTensor>& held_by, Held held) {
    const auto ranks = static_cast<std::int64_t>(held_by.size());
    const Shape& shape = held_by[0].shape();
    if (held == Held::whole || !held_by[0].elements()) {
        for (const HostTensor& other : held_by)
            REQUIRE(other == held_by[0]);
        return held_by[0];
    }
    const Shape whole_shape = held == Held::sequence
                                  ? shape.with_first(shape[0] * ranks)
                                  : shape.with_last(shape.columns() * ranks);
    HostTensor whole(whole_shape, held_by[0].dtype());
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const HostTensor& shard = held_by[static_cast<std::size_t>(rank)];
        const Shape matrix{whole_shape.rows(), whole_shape.columns()};
        const Part part =
            held == Held::sequence
                ? row_part(matrix, rank * shape.rows(), shape.rows())
                : column_part(matrix, rank * shape.columns(), shape.columns());
        put_shard(whole, shard, part);
    }
    return whole;
}

struct Results {
    HostTensor y;
    HostTensor dx;
};

/// Forward and backward on one rank.
Results run(Device& device, Module& module, const HostTensor& x, const HostTensor& dy,
            Backward backward = Backward::whole) {
    zero_gradients(module);
    Saved saved;
    Results results;
    results.y = device.download(module.forward(device.upload(x), saved));
    const Tensor gradient = device.upload(dy);
    const bool whole = backward == Backward::whole;
    const Tensor dx =
        whole ? module.backward(gradient, saved) : module.backward_input(gradient, saved);
    if (!whole) module.backward_weight(saved);
    if (dx) results.dx = device.download(dx);
    return results;
}

HostTensor as(const HostTensor& tensor, DType dtype) {
    return tensor.dtype() == DType::i32 ? tensor : tensor.as(dtype);
}

}  // namespace

MakeRegions regions(Regions kind) {
    return
        [kind](Device& device, Communicator& group) -> std::unique_ptr<TensorParallel> {
            if (kind == Regions::sequence_parallel)
                return std::make_unique<SequenceParallel>(device, group);
            return std::make_unique<TensorParallel>(device, group);
        };
}

void keep_parameters(Rank& rank, Module& module, const std::string& prefix,
                     Tensor Parameter::*tensor) {
    for (const Parameter* parameter : module.parameters())
        rank.keep(prefix + parameter->name(), parameter->*tensor, parameter->part());
}

std::map<std::string, HostTensor> wholes(const RunReport& report,
                                         const std::string& prefix) {
    std::map<std::string, HostTensor> all;
    for (const RankReport& rank : report.ranks)
        for (const auto& [name, tensor] : rank.kept)
            if (name.starts_with(prefix) && !all.contains(name.substr(prefix.size())))
                all[name.substr(prefix.size())] = report.whole(name);
    return all;
}

Outcome run_alone(DType dtype, const MakeAlone& make, const Inputs& inputs) {
    Outcome outcome;
    classroom(1)->run([&](Rank& rank) {
        const auto module = make({rank.device(), dtype, kSeed, ""});
        Results results =
            run(rank.device(), *module, as(inputs.x, dtype), as(inputs.dy, dtype));
        outcome.y = std::move(results.y);
        outcome.dx = std::move(results.dx);
        for (const Parameter* parameter : module->parameters()) {
            outcome.values[parameter->name()] = rank.device().peek(parameter->value);
            outcome.gradients[parameter->name()] =
                rank.device().peek(parameter->gradient);
        }
    });
    return outcome;
}

namespace {

/// What the ranks have after forward and backward: each its results, and in the report
/// "value/NAME" and "grad/NAME" of its parameters.
struct RanksOutcome {
    std::vector<Results> of_rank;
    RunReport report;
};

RanksOutcome run_ranks(int ranks, DType dtype, sim::CheckLevel check,
                       const MakeRegions& make_regions, const MakeShared& make,
                       const Inputs& inputs) {
    RanksOutcome outcome;
    outcome.of_rank.resize(static_cast<std::size_t>(ranks));
    const auto program = [&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(device, rank.world());
        const auto module = make({device, dtype, kSeed, ""}, *tp);
        outcome.of_rank[static_cast<std::size_t>(rank.index())] =
            run(device, *module,
                as(dealt(inputs.x, inputs.x_held, ranks, rank.index()), dtype),
                as(dealt(inputs.dy, inputs.y_held, ranks, rank.index()), dtype),
                inputs.backward);
        complete_gradients(module->parameters());
        keep_parameters(rank, *module, "value/", &Parameter::value);
        keep_parameters(rank, *module, "grad/", &Parameter::gradient);
    };
    outcome.report = classroom(ranks, /*numbers=*/true, check)->run(program);
    return outcome;
}

}  // namespace

Outcome run_shared(int ranks, DType dtype, const MakeRegions& make_regions,
                   const MakeShared& make, const Inputs& inputs) {
    const RanksOutcome shared =
        run_ranks(ranks, dtype, sim::check_level_asked(), make_regions, make, inputs);
    std::vector<HostTensor> y, dx;
    for (const Results& results : shared.of_rank) {
        y.push_back(results.y);
        dx.push_back(results.dx);
    }
    return {collected(y, inputs.y_held), collected(dx, inputs.x_held),
            wholes(shared.report, "value/"), wholes(shared.report, "grad/")};
}

Outcome run_first_rank(int ranks, DType dtype, const MakeRegions& make_regions,
                       const MakeShared& make, const Inputs& inputs) {
    const RanksOutcome shared =
        run_ranks(ranks, dtype, sim::CheckLevel::cheap, make_regions, make, inputs);
    Outcome outcome{shared.of_rank.front().y, shared.of_rank.front().dx, {}, {}};
    const RankReport& first = shared.report.ranks.front();
    const std::string prefix = "grad/";
    for (const auto& [name, gradient] : first.kept)
        if (name.starts_with(prefix) && holds_all(first.part_of(name)))
            outcome.gradients[name.substr(prefix.size())] = gradient;
    return outcome;
}

Difference difference(const Outcome& shared, const Outcome& alone) {
    Difference worst;
    const auto look = [&](const std::string& name, const HostTensor& a,
                          const HostTensor& b) {
        const double relative = relative_difference(a, b);
        if (!(relative <= worst.relative)) worst = {relative, name};
    };
    look("y", shared.y, alone.y);
    look("dx", shared.dx, alone.dx);
    REQUIRE(shared.gradients.size() == alone.gradients.size());
    for (const auto& [name, value] : alone.values) {
        REQUIRE(shared.values.count(name) == 1);
        look(name, shared.values.at(name), value);
        look("gradient of " + name, shared.gradients.at(name), alone.gradients.at(name));
    }
    return worst;
}

HostTensor normal_values(Shape shape, const std::string& name) {
    HostTensor tensor(shape, DType::f64);
    const RandomStream stream(1234, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, stream.normal(static_cast<std::uint64_t>(i)));
    return tensor;
}

HostTensor ids_below(Shape shape, std::int64_t limit, const std::string& name) {
    HostTensor tensor(shape, DType::i32);
    const RandomStream stream(1234, name);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
        tensor.set(i, std::floor(stream.uniform(static_cast<std::uint64_t>(i)) *
                                 static_cast<double>(limit)));
    return tensor;
}

double relative_difference(const HostTensor& a, const HostTensor& b) {
    REQUIRE(a.shape() == b.shape());
    double worst = 0, scale = 0;
    for (std::int64_t i = 0; i < a.elements(); ++i) {
        const double here = std::fabs(a.at(i) - b.at(i));
        if (std::isnan(here)) return here;
        worst = std::max(worst, here);
        scale = std::max(scale, std::fabs(b.at(i)));
    }
    return scale > 0 ? worst / scale : worst;
}

std::unique_ptr<Cluster> classroom(int ranks, bool numbers, sim::CheckLevel check) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = numbers;
    options.check = check;
    return sim::make_cluster(std::move(options));
}

}  // namespace lockstep::test
