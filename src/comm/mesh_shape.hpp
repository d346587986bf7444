#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/core/source_line.hpp"

namespace lockstep {

/// The arithmetic of a mesh: ranks arranged along named axes, of which the last one is
/// the fastest. It needs no devices: Mesh makes communicators of it.
///
///     const MeshShape shape({{"pp", 2}, {"dp", 2}, {"tp", 4}});
///     shape.coordinate(6, "dp");      // 1
///     shape.line(6, "pp");            // 6 14
///     shape.plane(6, {"dp", "tp"});   // 0 1 2 3 4 5 6 7
class MeshShape {
  public:
    struct Axis {
        std::string name;
        int size = 1;
        bool operator==(const Axis&) const = default;
    };

    /// Throws UsageError for a size below 1, for a name that is empty or there twice, and
    /// if the sizes multiply to more than 2^30 ranks.
    explicit MeshShape(std::vector<Axis> axes, SourceLine at = SourceLine::here());

    const std::vector<Axis>& axes() const { return axes_; }
    int ranks() const { return ranks_; }
    bool has(const std::string& axis) const;
    /// UsageError for a name that is no axis, here and below.
    int size(const std::string& axis) const { return axes_[place_of(axis)].size; }
    /// Returns the axis' place in the order of axes, from 0.
    std::size_t place_of(const std::string& axis) const;
    /// Returns how far apart two neighbours of a line are.
    int stride(const std::string& axis) const { return strides_[place_of(axis)]; }

    /// The rank's place along the axis, from 0.
    int coordinate(int rank, const std::string& axis) const;
    /// Its places along all axes, in their order.
    std::vector<int> coordinates(int rank) const;
    /// Ranks that differ from it in that coordinate alone, in its order.
    std::vector<int> line(int rank, const std::string& axis) const {
        return plane(rank, {axis});
    }
    /// Ranks that differ from it in those coordinates alone, ascending. UsageError for an
    /// axis that is named twice.
    std::vector<int> plane(int rank, const std::vector<std::string>& axes,
                           SourceLine at = SourceLine::here()) const;
    /// All planes along those axes: each rank is in one of them. By their first rank.
    std::vector<std::vector<int>> planes(const std::vector<std::string>& axes,
                                         SourceLine at = SourceLine::here()) const;

    /// "pp 2 x dp 2 x tp 4"; "no axes" if there are none.
    std::string text() const;
    /// "pp 2", "dp 2", "tp 4": an axis each.
    std::vector<std::string> axis_texts() const;

    bool operator==(const MeshShape&) const = default;

  private:
    std::vector<Axis> axes_;
    std::vector<int> strides_;  ///< by axis
    int ranks_ = 1;
};

/// Reads "pp=2,dp=2,tp=4", the slowest axis first. A name has at most 16 letters, digits,
/// "-" and "_". Throws UsageError, which says what was expected, for anything else.
MeshShape read_mesh_shape(std::string_view text);

}  // namespace lockstep
