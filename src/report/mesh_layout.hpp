#pragma once

#include <string>
#include <vector>

#include "src/comm/mesh_shape.hpp"

namespace lockstep {

/// The places of ranks in a picture of a mesh: rows and columns, in reading order. The
/// slower axes are in rows, the faster ones in columns. Axes with only one rank are not
/// shown. One axis may be cut into runs, one below the other:
///
///     dp 0–3     0  1  2  3
///     dp 4–7     4  5  6  7
class MeshLayout {
  public:
    /// The room that a picture may use.
    struct Room {
        int columns = 1;    ///< the maximum number of columns (1 or more)
        double ratio = 1;   ///< the picture's width, divided by its height
        double column = 1;  ///< the width of a column, in any unit
        double row = 1;     ///< the height of a row, in that unit
    };
    /// Of all layouts that fit, chooses the one whose ratio is nearest to the room's
    /// ratio. A layout that cuts an axis counts as worse.
    MeshLayout(const MeshShape& shape, const Room& room);

    int rows() const { return rows_; }
    int columns() const { return columns_; }
    /// Returns -1 if the place has no rank: the last run may be shorter.
    int rank_at(int row, int column) const;

    /// Return the axes along which rows differ, and a row's places along them: "0", or
    /// "0–3" for an axis that is cut.
    std::vector<std::string> row_axes() const;
    std::vector<std::string> row_places(int row) const;

    /// Returns the axes along which columns differ, the slowest first.
    std::vector<std::string> column_axes() const;
    /// Returns how many adjacent columns share a place along the axis.
    int columns_a_place(const std::string& axis) const;

  private:
    std::vector<MeshShape::Axis> axes_;  ///< with more than one rank; at least one axis
    std::size_t cut_ = 0;                ///< the axis that is cut; rows show slower axes
    int run_ = 1;                        ///< places of axis cut_ in a row
    int fast_ = 1;                       ///< ranks in each place of axis cut_
    int rows_ = 1;
    int columns_ = 1;
};

}  // namespace lockstep
