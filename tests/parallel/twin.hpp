// A module whose weights t ranks share out, beside its twin on one device: what goes in
// is dealt out, what comes out is put together again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/nn/module.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep::test {

/// How ranks hold a tensor: all of it, each a part of the first dimension, or of the
/// columns.
enum class Held { whole, sequence, columns };

enum class Regions { replicated, sequence_parallel };

/// Makes the ranks' TensorParallel.
using MakeRegions =
    std::function<std::unique_ptr<TensorParallel>(Device&, Communicator&)>;
MakeRegions regions(Regions kind);

/// What forward and backward of a module leave, whole.
struct Outcome {
    HostTensor y;
    HostTensor dx;
    std::map<std::string, HostTensor> values;
    std::map<std::string, HostTensor> gradients;
};

enum class Backward { whole, halves };

struct Inputs {
    HostTensor x;
    HostTensor dy;
    Held x_held = Held::whole;
    Held y_held = Held::whole;
    Backward backward = Backward::whole;  ///< of the ranks; one device does it whole
};

using MakeAlone = std::function<std::unique_ptr<Module>(const ParameterInit&)>;
using MakeShared =
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)>;

Outcome run_alone(DType dtype, const MakeAlone& make, const Inputs& inputs);
/// Requires that what every rank holds whole has the same bits on all.
Outcome run_shared(int ranks, DType dtype, const MakeRegions& make_regions,
                   const MakeShared& make, const Inputs& inputs);

/// The same for modules that err: what rank 0 has, y and dx whole, and parameters that it
/// holds whole, without a look at the other ranks or by the checker.
Outcome run_first_rank(int ranks, DType dtype, const MakeRegions& make_regions,
                       const MakeShared& make, const Inputs& inputs);

/// The largest relative difference of any tensor of the two, and its name.
struct Difference {
    double relative = 0;
    std::string name;
};
Difference difference(const Outcome& shared, const Outcome& alone);

/// Keeps that tensor of each parameter, a part of a whole, under prefix + NAME.
void keep_parameters(Rank& rank, Module& module, const std::string& prefix,
                     Tensor Parameter::*tensor);
/// Returns the wholes of what ranks kept under prefix + NAME, by NAME.
std::map<std::string, HostTensor> wholes(const RunReport& report,
                                         const std::string& prefix);

/// Normal values, the same for the same name.
HostTensor normal_values(Shape shape, const std::string& name);
/// Indices below `limit`.
HostTensor ids_below(Shape shape, std::int64_t limit, const std::string& name);
/// The largest |a - b| over the largest |b|; NaN where there is one.
double relative_difference(const HostTensor& a, const HostTensor& b);

/// A cluster of virtual devices for these tests.
std::unique_ptr<Cluster> classroom(int ranks, bool numbers = true,
                                   sim::CheckLevel check = sim::check_level_asked());

}  // namespace lockstep::test
