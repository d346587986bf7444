#pragma once

#include <cstdint>
#include <vector>

#include "src/device/device.hpp"

namespace lockstep {

/// The way of N tokens to the experts that a router chose for them, k each, and back. The
/// N k copies of tokens lie expert by expert, of each expert's in the order of tokens:
///
///     device.take_rows(copies, x, routing.rows);     x (N, width), copies (N k, width)
///     …                                              experts, each on its own rows
///     device.take_rows(by, weights, routing.order);  weights (N k, 1), by (N k, 1)
///     device.scale_rows(copies, by);
///     device.add_rows(y, copies, routing.rows);      y (N, width)
struct Routing {
    Tensor order;  ///< (N k), i32: the place in the ids, laid out flat, of each copy
    Tensor rows;   ///< (N k), i32: the token of each copy
    /// The copies that each expert gets; they are on the host, since shapes and the sizes
    /// of messages follow from them.
    std::vector<std::int64_t> counts;
};

/// Routes the tokens whose experts are ids (N, k), i32, as top_k gives them. It sorts the
/// ids and waits for the counts, 4 bytes an expert, which it downloads. Throws UsageError
/// for an id outside [0, experts).
///
/// A run that computes shapes only has no ids to look at. There the experts get N k /
/// experts copies each, and the first ones one more if that is no whole number: the run
/// takes the time and sends the bytes of a balanced load.
Routing route(Device& device, const Tensor& ids, std::int64_t experts,
              SourceLine at = SourceLine::here());

}  // namespace lockstep
