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
/// The last axis is the fastest: the ranks of a line along it are neighbours, often on
/// one node. The ranks of a line along the first axis are farthest apart. With 16 ranks:
///
///              pp 0                       pp 1
///            tp 0  1  2  3              tp 0  1  2  3
///     dp 0      0  1  2  3       dp 0      8  9 10 11
///     dp 1      4  5  6  7       dp 1     12 13 14 15
///
/// Rank 6 has tp line 4 5 6 7, dp line 2 6, pp line 6 14, and the coordinates pp 0, dp 1,
/// tp 2. Every rank of `world` must make the same mesh; if not, FaultError (F06).
class Mesh {
  public:
    using Axis = MeshShape::Axis;

    /// Splits `world` once for each axis, in order; `world` must outlive the mesh.
    /// UsageError if the sizes do not multiply to the world size, or if a name is empty
    /// or occurs twice.
    Mesh(Communicator& world, std::vector<Axis> axes, SourceLine at = SourceLine::here());

    /// Returns this rank's line along the axis: the ranks whose other coordinates are the
    /// same as this rank's, ascending. UsageError for a name that is no axis.
    Communicator& operator[](const std::string& axis) const;
    /// Returns this rank's plane along these axes: the ranks whose other coordinates are
    /// the same, in the order of the world. The first call for a plane splits the
    /// world, so all ranks must ask for planes in the same order. UsageError for a name
    /// that is no axis, or occurs twice.
    Communicator& plane(const std::vector<std::string>& axes,
                        SourceLine at = SourceLine::here());
    /// Returns whether `ranks` is one of this mesh's lines or planes along that axis.
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
    /// The planes, by the numbers of their axes.
    std::map<std::vector<std::size_t>, std::unique_ptr<Communicator>> planes_;
};

}  // namespace lockstep
