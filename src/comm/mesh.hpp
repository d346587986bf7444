#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/comm/mesh_shape.hpp"

namespace lockstep {

/// Ranks arranged along named axes, for strategies that combine several kinds of
/// parallelism: dp, tp, pp, cp, ep are the usual names.
///
///     Mesh mesh(rank.world(), {{"pp", 2}, {"dp", 2}, {"tp", 4}});
///     mesh["tp"].all_reduce(partial).wait();
///
/// The last axis is the fastest, so its lines are neighbours, which share a node; the
/// first one's lie farthest apart. Of 16 ranks:
///
///              pp 0                       pp 1
///            tp 0  1  2  3              tp 0  1  2  3
///     dp 0      0  1  2  3       dp 0      8  9 10 11
///     dp 1      4  5  6  7       dp 1     12 13 14 15
///
/// Rank 6 has tp line 4 5 6 7, dp line 2 6, pp line 6 14, and the coordinates pp 0, dp 1,
/// tp 2. Every rank of `world` makes the same mesh; FaultError (F06) where they do not.
class Mesh {
  public:
    using Axis = MeshShape::Axis;

    /// Splits `world` once an axis, in their order; `world` must stay. UsageError where
    /// the sizes do not multiply to the world's, or a name is empty or there twice.
    Mesh(Communicator& world, std::vector<Axis> axes, SourceLine at = SourceLine::here());

    /// This rank's line along the axis: the ranks that differ from it in that coordinate
    /// alone, numbered by it. UsageError for a name that is no axis.
    Communicator& operator[](const std::string& axis) const;
    /// This rank's plane: the ranks that differ from it in those coordinates alone, in
    /// the order of the world. All ranks ask for it, once or more often, in one order
    /// with other planes: the first time splits the world. UsageError for a name that is
    /// no axis, or there twice.
    Communicator& plane(const std::vector<std::string>& axes,
                        SourceLine at = SourceLine::here());
    /// Returns whether `ranks` is a line of that axis, or a plane along it, of this mesh.
    bool spans(const Communicator& ranks, const std::string& axis) const;
    /// Returns this rank's place along the axis, from 0.
    int coordinate(const std::string& axis) const { return (*this)[axis].rank(); }
    int size(const std::string& axis) const { return shape_.size(axis); }
    bool has(const std::string& axis) const { return shape_.has(axis); }

    const MeshShape& shape() const { return shape_; }
    const std::vector<Axis>& axes() const { return shape_.axes(); }
    Communicator& world() const { return *world_; }

  private:
    Communicator* world_;
    MeshShape shape_;
    std::vector<std::unique_ptr<Communicator>> lines_;  ///< by axis
    /// The axes of each plane, in order.
    std::map<std::vector<std::size_t>, std::unique_ptr<Communicator>> planes_;
};

}  // namespace lockstep
