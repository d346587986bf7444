#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/parallel/tensor_parallel.hpp"
#include "src/report/safetensors.hpp"
#include "src/trial/outcome.hpp"
#include "src/trial/training.hpp"

namespace lockstep::lessons {

/// A matrix of these numbers, row by row.
HostTensor matrix(std::int64_t columns, const std::vector<double>& values, DType dtype);

/// Whole numbers from -2 to 2, so few that every sum of their products is
/// exact; the same for the same seed and name.
HostTensor whole_numbers(Shape shape, DType dtype, std::uint64_t seed,
                         const std::string& name);

HostTensor transposed(const HostTensor& matrix);
/// The columns that rank `rank` of `ranks` has, of as many each.
HostTensor columns_of_rank(const HostTensor& matrix, int rank, int ranks);
/// All of as many rows.
HostTensor side_by_side(const std::vector<HostTensor>& matrices);
/// All of one shape.
HostTensor sum_of(const std::vector<HostTensor>& matrices);

/// Numbers of the two that are not equal; of one shape. NaN differs.
std::int64_t differing(const HostTensor& a, const HostTensor& b);

/// "-2", "1.95": two digits after the point, if they are not 0.
std::string number(double value);

/// Matrices beside one another, each under its name and shape; of a wide
/// or long one what fits a pencil.
std::string matrices_text(
    const std::vector<std::pair<std::string, HostTensor>>& matrices);

/// A model whose weights ranks share out, and what goes in at both ends.
struct Task {
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)> make;
    HostTensor x;
    HostTensor dy;
    bool own_columns_of_x = false;  ///< of each rank; else all hold x whole
    bool own_columns_of_dy = false;
    /// Whole parameters by name; those that are not there are drawn.
    NamedTensors weights;
    std::uint64_t seed = 0;
    bool keeps = true;  ///< what pass() says, but for the bytes; else nothing
    /// Makes the f and g that lead in and out of regions.
    std::function<std::unique_ptr<TensorParallel>(Rank&)> regions = [](Rank& rank) {
        return std::make_unique<TensorParallel>(rank.device(), rank.world());
    };
};

/// One forward and one backward pass on every rank. Each keeps "y", "dx",
/// its shards "initial/NAME" and "grad/NAME", and as series the bytes that
/// it sent, "forward" and "backward".
RunReport pass(Cluster& cluster, const Task& task);

/// Returns what rank `rank` kept.
const HostTensor& kept(const RunReport& report, int rank, const std::string& name);
/// Returns what each rank kept.
std::vector<HostTensor> kept_by_all(const RunReport& report, const std::string& name);

/// The bytes that a rank sent in that half, "forward" or "backward".
std::int64_t bytes_of_half(const RunReport& report, int rank, const std::string& half);

/// The parameters' gradients put together, as "grad/NAME".
NamedTensors whole_gradients(const RunReport& report);

// Numbers that are not what one device has:

/// where each rank keeps its own columns of `name`;
std::int64_t differing_side_by_side(const RunReport& together, const RunReport& alone,
                                    const std::string& name);
/// where every rank keeps the whole, over all ranks;
std::int64_t differing_on_any(const RunReport& together, const HostTensor& expected,
                              const std::string& name);
/// of the gradients, put together.
std::int64_t differing_gradients(const RunReport& together, const RunReport& alone);

}  // namespace lockstep::lessons
