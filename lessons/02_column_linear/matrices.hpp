#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

/// A matrix of these numbers, row by row.
HostTensor matrix(std::int64_t columns, const std::vector<double>& values,
                  DType dtype);

/// Whole numbers from -2 to 2, so few that every sum of their products is
/// exact; the same for the same seed and name.
HostTensor whole_numbers(Shape shape, DType dtype, std::uint64_t seed,
                         const std::string& name);
HostTensor normal_numbers(Shape shape, DType dtype, std::uint64_t seed,
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

/// "-2", "1.95": two digits after the point, where they are not 0.
std::string number(double value);

/// Matrices beside one another, each under its name and shape; of a wide
/// or long one what fits a pencil.
std::string matrices_text(
    const std::vector<std::pair<std::string, HostTensor>>& matrices);

}  // namespace lockstep::lessons
