#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/core/source_line.hpp"

namespace lockstep {

/// The arithmetic of a mesh: ranks arranged along named axes; the last axis is the
/// fastest. It needs no devices; Mesh makes communicators from it.
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

    /// Throws UsageError for a size below 1, for a name that is empty or occurs twice,
    /// and if the product of the sizes is more than 2^30 ranks.
    explicit MeshShape(std::vector<Axis> axes, SourceLine at = SourceLine::here());

    const std::vector<Axis>& axes() const { return axes_; }
    int ranks() const { return ranks_; }
    bool has(const std::string& axis) const;
    /// This and the following functions throw UsageError for a name that is no axis.
    int size(const std::string& axis) const { return axes_[place_of(axis)].size; }
    /// Returns the axis' place in the order of axes, from 0.
    std::size_t place_of(const std::string& axis) const;
    /// Returns the distance between the ranks of two neighbours in a line.
    int stride(const std::string& axis) const { return strides_[place_of(axis)]; }

    /// Returns the rank's place along the axis, from 0.
    int coordinate(int rank, const std::string& axis) const;
    /// Returns the rank's places along all axes, in the order of axes.
    std::vector<int> coordinates(int rank) const;
    /// Returns, ascending, the ranks whose other coordinates are those of `rank`.
    std::vector<int> line(int rank, const std::string& axis) const {
        return plane(rank, {axis});
    }
    /// Returns, ascending, the ranks whose coordinates on all other axes are the same as
    /// those of `rank`. UsageError for an axis that is named twice.
    std::vector<int> plane(int rank, const std::vector<std::string>& axes,
                           SourceLine at = SourceLine::here()) const;
    /// Returns all planes along those axes, ordered by their first rank. Each rank is in
    /// one plane.
    std::vector<std::vector<int>> planes(const std::vector<std::string>& axes,
                                         SourceLine at = SourceLine::here()) const;

    /// "pp 2 x dp 2 x tp 4"; "no axes" if there are none.
    std::string text() const;
    /// "pp 2", "dp 2", "tp 4": one text for each axis.
    std::vector<std::string> axis_texts() const;

    bool operator==(const MeshShape&) const = default;

  private:
    std::vector<Axis> axes_;
    std::vector<int> strides_;  ///< by axis
    int ranks_ = 1;
};

/// Reads "pp=2,dp=2,tp=4", the slowest axis first. A name has at most 16 letters, digits,
/// "-" and "_". For anything else, throws UsageError that says what was expected.
MeshShape read_mesh_shape(std::string_view text);

}  // namespace lockstep
